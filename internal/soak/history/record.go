package history

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_MONOTONIC, which is one clock for all processes of a machine:
// histories of several processes merge without skew.
func Now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail with these arguments
	return ts.Nano()
}

// Never is the end of what had not ended.
const Never = math.MaxInt64

// Op says what a Record is about.
type Op string

// What a caller of the Locker does.
const (
	Acquire Op = "acquire"
	Reenter Op = "reenter"
	Release Op = "release"
	Check   Op = "check" // lock.Check inside the section
	Write   Op = "write" // to the fenced register
	Leave   Op = "leave" // the write side of a read-write lock, by lock.Hold.Downgrade

	Await     Op = "cond.wait" // under the lock: the hold ends, and Next begins when it returns
	Signal    Op = "cond.signal"
	Broadcast Op = "cond.broadcast"
)

// What the Locker asks of the backend.
const (
	Grant Op = "lease.acquire" // one try
	Renew Op = "lease.renew"
	Free  Op = "lease.release"
	Undo  Op = "lease.undo"
	Down  Op = "lease.downgrade"
	Shut  Op = "backend.close" // all leases of the process go back, also those whose grant it has not heard of
)

// What a process says of itself.
const (
	Started Op = "started" // a Locker was made; Lease is the prefix of its ids
	Closed  Op = "closed"  // the Locker was closed, and the process looked for leaks
	Broken  Op = "broken"  // the client saw a promise of the API broken
	Late    Op = "late"    // the machine had no time for the process
)

// Busy is for how long, in ns, a process that does nothing but sleep must be late for the
// machine to be to blame for what goes wrong.
const Busy = int64(50e6)

// Outcome is what is known of an operation's effect.
type Outcome string

const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"    // it had none
	Refused Outcome = "refused" // it had none: the engine refused, or could not be reached
	Unknown Outcome = "unknown" // it may have had one, or may yet have
	Lost    Outcome = "lost"    // the lock was not the caller's any more
	Done    Outcome = "done"    // it had none: the tick was completed before
	TooMany Outcome = "busy"    // it had none: as many wait as may
)

// Record is one operation. It is written when the operation begins, if it may
// have an effect although the process is killed meanwhile, and when it ends;
// both have the same Seq.
type Record struct {
	Proc    int     `json:"proc"`
	Seq     uint64  `json:"seq"`
	Op      Op      `json:"op"`
	Key     string  `json:"key,omitempty"`
	Lease   string  `json:"lease,omitempty"` // the acquisition's id
	Hold    uint64  `json:"hold,omitempty"`  // counts holds in its process; of a try: the hold that it is for
	Call    int64   `json:"callNs"`
	Ret     int64   `json:"retNs,omitempty"` // 0 in a record of a beginning
	Outcome Outcome `json:"outcome,omitempty"`
	Token   uint64  `json:"token,omitempty"`  // of a grant: the first of the block
	Tokens  uint64  `json:"tokens,omitempty"` // of a grant: how many are reserved
	TTL     int64   `json:"ttlNs,omitempty"`  // as asked for
	Valid   int64   `json:"validUntilNs,omitempty"`
	Since   int64   `json:"sinceNs,omitempty"` // of a grant that the engine made before the call: when, or a little earlier
	Wait    int64   `json:"waitNs,omitempty"`
	Kept    int64   `json:"keptNs,omitempty"`   // for how long the lease may be kept idle after the release
	CtxEnd  int64   `json:"ctxEndNs,omitempty"` // when the call's context ended, if it did first
	Renews  bool    `json:"renews,omitempty"`   // the watchdog is to keep the lease for all of the section
	Live    bool    `json:"ctxLive,omitempty"`  // of a check: the section's context had not ended
	Several bool    `json:"several,omitempty"`  // one of the locks that are taken together
	Bound   int     `json:"bound,omitempty"`    // how many may wait for the key; 0 is any number
	Delay   int64   `json:"delayNs,omitempty"`  // for how long the lock stays closed if it is lost
	Next    uint64  `json:"next,omitempty"`     // of a Wait for a condition: the hold that it returns with
	Again   bool    `json:"again,omitempty"`    // of an acquire: the lock was taken again at the end of such a Wait
	Note    string  `json:"note,omitempty"`

	// Of locks that are no mutexes.
	Kind      string `json:"kind,omitempty"`      // as driver.Kind names it; "" is a mutex
	Limit     int    `json:"limit,omitempty"`     // how many permits there are
	Weight    int    `json:"weight,omitempty"`    // and how many of them it takes
	Tick      string `json:"tick,omitempty"`      // of Kind "once"
	Completes bool   `json:"completes,omitempty"` // of a release: the tick is done
	Queued    bool   `json:"queued,omitempty"`    // of a try: it is to leave a place in the engine's queue
}

// Writer notes the records of one process.
type Writer struct {
	proc int
	now  func() int64
	put  func(Record) error

	mu  sync.Mutex // guards the rest, and put
	seq uint64
	err error
}

// NewWriter returns a Writer for the process with number proc. Each record is one line
// of JSON and one write, so that all that was written survives when the process is
// killed.
func NewWriter(out io.Writer, proc int) *Writer {
	return NewRecorder(proc, Now, func(r Record) error {
		line, err := json.Marshal(r)
		if err == nil {
			_, err = out.Write(append(line, '\n'))
		}
		return err
	})
}

// NewRecorder returns a Writer that reads the clock now, in ns, and hands each record
// to put, one at a time.
func NewRecorder(proc int, now func() int64, put func(Record) error) *Writer {
	return &Writer{proc: proc, now: now, put: put}
}

// Now reads the clock of the Writer's records.
func (w *Writer) Now() int64 { return w.now() }

// Begin writes that r begins now and returns it for End.
func (w *Writer) Begin(r Record) Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	r.Proc, r.Seq = w.proc, w.seq
	r.Call = w.now()
	w.write(r)
	return r
}

// End writes that r ended, now unless it says when.
func (w *Writer) End(r Record) {
	if r.Ret == 0 {
		r.Ret = w.now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Seq == 0 { // its beginning was not worth a record
		w.seq++
		r.Proc, r.Seq = w.proc, w.seq
	}
	w.write(r)
}

func (w *Writer) write(r Record) {
	if err := w.put(r); err != nil && w.err == nil {
		w.err = err
	}
}

// Err returns the first error of writing.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Class says which promises a fault takes away.
type Class string

const (
	Plain     Class = "plain"      // none: all must be kept
	DataLoss  Class = "data loss"  // the server forgot all: I2, I3 of the leases of that moment
	ClockBack Class = "clock back" // the server's clock went back: what expires lasts longer
	ForceFree Class = "force free" // an operator deleted one lock: I2, I3 of the leases of that key
)

// Fault is one fault that was injected.
type Fault struct {
	Kind   string `json:"kind"`
	Class  Class  `json:"class"`
	Proc   int    `json:"proc,omitempty"` // the process that was struck, 0 if not a single one
	Key    string `json:"key,omitempty"`
	Begin  int64  `json:"beginNs"`
	End    int64  `json:"endNs"`
	Detail string `json:"detail,omitempty"`

	// Resumes is within what time of Begin somebody must be granted a lock, if no other fault is in force; 0 if it is not said.
	Resumes int64 `json:"resumesNs,omitempty"`
}

// Attempt is one write as the fenced register saw it.
type Attempt struct {
	At       int64  `json:"atNs"`
	Key      string `json:"key"`
	Proc     int    `json:"proc"`
	Hold     uint64 `json:"hold"`
	Token    uint64 `json:"token"`
	Accepted bool   `json:"accepted"`
}

// KeyState is one key as the server has it.
type KeyState struct {
	Name   string            `json:"name"`
	Type   string            `json:"type"`
	PTTL   int64             `json:"pttl"` // ms; -1 is for ever
	Fields map[string]string `json:"fields,omitempty"`
	Value  string            `json:"value,omitempty"` // of the record of a lock that is no mutex
	Now    int64             `json:"nowUs,omitempty"` // and the server's clock
}

// kinded is in the name of each key of a lock that is no mutex, and in no other.
const kinded = ":kind:"

// KindedKey returns a key for locks of this kind, whose name begins with prefix.
func KindedKey(prefix, kind string) string { return prefix + kinded + kind }

// ofCondition is before a lock's key in the key of its condition.
const ofCondition = "lockgen:condition:"

// IsKinded reports whether key is of a lock that is no mutex, or of a condition.
func IsKinded(key string) bool {
	return strings.Contains(key, kinded) || strings.HasPrefix(key, ofCondition)
}

// Sample is all keys of the server at one instant between Begin and End.
type Sample struct {
	Begin int64      `json:"beginNs"`
	End   int64      `json:"endNs"`
	Keys  []KeyState `json:"keys"`
}

// History is what is known of one episode.
type History struct {
	Records  []Record
	Faults   []Fault
	Attempts []Attempt // in the order of the register
	Samples  []Sample
	Keys     []string // the locks

	// Told is how late a goroutine may run before it counts as not having been told,
	// in ns; 0 is 400 ms, for a busy machine. In virtual time nobody is late.
	Told int64
}
