package history

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Now reads CLOCK_MONOTONIC. All processes of a machine share this clock, so
// histories of several processes can be merged.
func Now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail with these arguments
	return ts.Nano()
}

// Never is the end of an operation that did not end.
const Never = math.MaxInt64

// Op is the operation of a Record.
type Op string

// Operations of a caller of the Locker.
const (
	Acquire Op = "acquire"
	Reenter Op = "reenter"
	Release Op = "release"
	Check   Op = "check" // lock.Check inside the section
	Write   Op = "write" // to the fenced register
	Leave   Op = "leave" // leaving the write side of a read-write lock, by lock.Hold.Downgrade

	Await     Op = "cond.wait" // under the lock: the hold ends, and Next begins when it returns
	Signal    Op = "cond.signal"
	Broadcast Op = "cond.broadcast"
)

// Requests of the Locker to the backend.
const (
	Grant Op = "lease.acquire" // one attempt
	Renew Op = "lease.renew"
	Free  Op = "lease.release"
	Undo  Op = "lease.undo"
	Down  Op = "lease.downgrade"
	Shut  Op = "backend.close" // releases all leases of the process, even those whose grant has not been answered
)

// Records of a process about itself.
const (
	Started Op = "started" // a Locker was made; Lease is the prefix of its ids
	Closed  Op = "closed"  // the Locker was closed, and the process checked for leaks
	Broken  Op = "broken"  // the client observed a broken promise of the API
	Late    Op = "late"    // the machine did not run the process in time
)

// Busy is the lateness in ns of a process that only sleeps, from which on the machine counts as the cause
// of a failure.
const Busy = int64(50e6)

// Outcome is what is known of an operation's effect.
type Outcome string

const (
	OK      Outcome = "ok"
	Fail    Outcome = "fail"    // no effect
	Refused Outcome = "refused" // no effect: the engine refused or could not be reached
	Unknown Outcome = "unknown" // it may have had an effect, or may still have one
	Lost    Outcome = "lost"    // the lock did not belong to the caller any more
	Done    Outcome = "done"    // no effect: the tick was completed before
	TooMany Outcome = "busy"    // no effect: the queue is full
)

// Record is one operation. It is written when the operation ends. It is also written
// when the operation begins, if the operation may have an effect although its process
// is killed meanwhile. Both records have the same Seq.
type Record struct {
	Proc    int     `json:"proc"`
	Seq     uint64  `json:"seq"`
	Op      Op      `json:"op"`
	Key     string  `json:"key,omitempty"`
	Lease   string  `json:"lease,omitempty"` // the acquisition's id
	Hold    uint64  `json:"hold,omitempty"`  // number of the hold in its process; of an attempt: the hold that it is for
	Call    int64   `json:"callNs"`
	Ret     int64   `json:"retNs,omitempty"` // 0 in the record of a beginning
	Outcome Outcome `json:"outcome,omitempty"`
	Token   uint64  `json:"token,omitempty"`  // of a grant: the first of the block
	Tokens  uint64  `json:"tokens,omitempty"` // of a grant: how many tokens are reserved
	TTL     int64   `json:"ttlNs,omitempty"`  // the requested one
	Valid   int64   `json:"validUntilNs,omitempty"`
	Since   int64   `json:"sinceNs,omitempty"` // of a grant before the call: its time, or a little earlier
	Wait    int64   `json:"waitNs,omitempty"`
	Kept    int64   `json:"keptNs,omitempty"`   // how long the lease may be kept idle after the release
	CtxEnd  int64   `json:"ctxEndNs,omitempty"` // when the call's context ended, if that was before the call's end
	Renews  bool    `json:"renews,omitempty"`   // the watchdog must keep the lease for the whole section
	Live    bool    `json:"ctxLive,omitempty"`  // of a check: the section's context had not ended
	Several bool    `json:"several,omitempty"`  // one of several locks that are acquired together
	Bound   int     `json:"bound,omitempty"`    // how many calls may wait for the key; 0 means no limit
	Delay   int64   `json:"delayNs,omitempty"`  // how long the lock stays closed if it is lost
	Next    uint64  `json:"next,omitempty"`     // of a Wait for a condition: the hold that it returns with
	Again   bool    `json:"again,omitempty"`    // of an acquire: by a Wait, at its end
	Note    string  `json:"note,omitempty"`

	// Only for locks that are not mutexes:
	Kind      string `json:"kind,omitempty"`      // as driver.Kind names it; "" is a mutex
	Limit     int    `json:"limit,omitempty"`     // how many permits there are
	Weight    int    `json:"weight,omitempty"`    // how many permits it takes
	Tick      string `json:"tick,omitempty"`      // for Kind "once"
	Completes bool   `json:"completes,omitempty"` // of a release: it completes the tick
	Queued    bool   `json:"queued,omitempty"`    // of an attempt: it leaves a place in the engine's queue
}

// Writer writes the records of one process.
type Writer struct {
	proc int
	now  func() int64
	put  func(Record) error

	mu  sync.Mutex // guards the rest, and put
	seq uint64
	err error
}

// NewWriter returns a Writer for the process with number proc. Each record is one line
// of JSON and one write, so all written records survive when the process is
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

// Now reads the clock of the Writer.
func (w *Writer) Now() int64 { return w.now() }

// Begin writes a record that r begins now, and returns it for End.
func (w *Writer) Begin(r Record) Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	r.Proc, r.Seq = w.proc, w.seq
	r.Call = w.now()
	w.write(r)
	return r
}

// End writes a record that r ended: at r.Ret, or now if that is 0.
func (w *Writer) End(r Record) {
	if r.Ret == 0 {
		r.Ret = w.now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Seq == 0 { // there is no record of its beginning
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

// Class says which promises do not hold after a fault.
type Class string

const (
	Plain     Class = "plain"      // all promises hold
	DataLoss  Class = "data loss"  // the server lost all data: not I2 and I3, for leases at that moment
	ClockBack Class = "clock back" // the server's clock went back: keys expire later
	ForceFree Class = "force free" // an operator deleted one lock: not I2 and I3, for leases of that key
)

// Fault is one fault that was injected.
type Fault struct {
	Kind   string `json:"kind"`
	Class  Class  `json:"class"`
	Proc   int    `json:"proc,omitempty"` // the process with the fault; 0 if it is not a single process
	Key    string `json:"key,omitempty"`
	Begin  int64  `json:"beginNs"`
	End    int64  `json:"endNs"`
	Detail string `json:"detail,omitempty"`

	// Resumes is the time after Begin within which some process must be granted a lock, if there is no other fault. 0 means no limit.
	Resumes int64 `json:"resumesNs,omitempty"`
}

// Attempt is one write, as recorded by the fenced register.
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
	PTTL   int64             `json:"pttl"` // ms; -1 means no expiry
	Fields map[string]string `json:"fields,omitempty"`
	Value  string            `json:"value,omitempty"` // the record of a lock that is not a mutex
	Now    int64             `json:"nowUs,omitempty"` // the server's clock, with Value
}

// kinded is part of the names of the keys of locks that are not mutexes, and of no other keys.
const kinded = ":kind:"

// KindedKey returns a key for locks of this kind. Its name begins with prefix.
func KindedKey(prefix, kind string) string { return prefix + kinded + kind }

// ofCondition is the prefix that makes a lock's key the key of its condition.
const ofCondition = "lockgen:condition:"

// IsKinded reports whether key is the key of a lock that is not a mutex, or of a condition.
func IsKinded(key string) bool {
	return strings.Contains(key, kinded) || strings.HasPrefix(key, ofCondition)
}

// Sample holds all keys of the server at one instant between Begin and End.
type Sample struct {
	Begin int64      `json:"beginNs"`
	End   int64      `json:"endNs"`
	Keys  []KeyState `json:"keys"`
}

// History is everything that was recorded of one episode.
type History struct {
	Records  []Record
	Faults   []Fault
	Attempts []Attempt // in the order of the register
	Samples  []Sample
	Keys     []string // the locks

	// Told is how late, in ns, a context may end or a goroutine may run. 0 means 400 ms,
	// for a busy machine. In virtual time nothing is late.
	Told int64
}
