// Package record keeps read-write locks, fair locks and semaphores in one value for each key, at an
// engine that can replace a value if it is unchanged. The value says who holds the lock, who waits
// and whose turn it is, so that each step is one write: a write by which a holder leaves also lets
// in the waiters whose turn it is.
//
// An attempt that arrives late changes nothing, because it names the version that it has seen. The
// only version that can come back is that of a key without a value. So a value whose last attempt
// had no answer is kept for as long as such an attempt may still arrive.
package record

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// grantLease is the length of a lease that is granted from the queue, until the new holder
	// renews it. A process that hangs in the queue delays the others for this time, and until the
	// next of them tries, as each does once a second.
	grantLease = 500 * time.Millisecond
	// placeTTL is how long a place in the queue lasts. A waiter tries once a second, which extends
	// it.
	placeTTL = 2500 * time.Millisecond
	// tombstoneMargin is how long, beyond the lease's length, an attempt without an answer may still take
	// to reach the engine.
	tombstoneMargin = time.Minute
	// retention is how long the engine keeps the value of a key that nobody uses any more. Tokens
	// still rise if the engine's clock is set back by as much.
	retention = 2500 * time.Millisecond
	// versionLength is the length of a version: 8 random bytes in hexadecimal.
	versionLength = 16
	// longestPause bounds the pause of an acquire whose write lost to other writers of the key.
	longestPause = 100 * time.Millisecond
	// maxSeen bounds how many values are remembered.
	maxSeen = 1000
)

// Write asks an engine to replace the value of a key if it is unchanged.
type Write struct {
	Key     string
	Seen    string        // the version that the key must have; "" means no value at all
	Place   any           // Answer.Place of the value that was seen
	Look    bool          // only read
	Takes   bool          // the write is to take a lock
	Waits   bool          // the caller would rather wait for another server than be refused
	Renews  bool          // the write is to renew a lease, and waits for nothing else
	Value   string        // the new value
	Lasts   time.Duration // the engine forgets the value after this time; 0 means at once
	Granted []string      // the IDs that the write takes out of the queue: their processes are to be notified
	Wanted  []string      // the IDs of the holders that others have begun to wait for

	retryQueue string // the queue of this process in which retries are made one at a time: "", or that of releases
}

// Answer is the engine's answer to a [Write].
type Answer struct {
	Done       bool   // it was written
	Value      string // what is at the key now; "" means nothing
	Now        Time   // the engine's time when the value was written or read; 0 if it has no clock
	Place      any    // how the engine finds the value again, such as a revision; nil is nothing
	MayHaveRun bool   // some attempt to send the write had no answer, and may still arrive
}

// Store is an engine that can do a [Write]. Swap does not wait for others; it may send the request
// again. Where the new value holds a Time or a Token that stands for the engine's time, Swap
// replaces it, as Resolve does. MayHaveRun counts even if there is an error.
type Store interface {
	Swap(ctx context.Context, w Write) (Answer, error)
}

// Locks are the locks of one Backend. Make it with [New]. Its methods may be called from
// any number of goroutines.
type Locks struct {
	store Store

	renewsGrants bool                      // see NewWatched
	life         *engine.Life              // likewise: the Backend's
	watch        Watch                     // likewise
	clockless    bool                      // see NewClockless
	began        time.Time                 // likewise: the zero of localTime
	arrivals     engine.KeyedMutex[string] // by key: acquires of this process that join the queue
	retries      engine.KeyedMutex[string] // by key and retryQueue: writes that take no lock, and whose first try lost
	removals     engine.KeyedMutex[string] // at an engine without a clock: removals of records, all for ""

	mu       sync.Mutex           // guards the rest
	beats    map[string]beats     // by key, of an engine without a clock
	removing map[string]bool      // likewise: the keys whose records are going to be removed
	watches  map[string]*keyWatch // by key
	seen     map[string]view      // by key: what was there when it was last seen
	leases   map[string]*lease    // by ID: the leases that are held
}

// view is what was at a key at one moment.
type view struct {
	version string
	state   State
	place   any
	now     Time           // by the engine's clock
	at      driver.Instant // an instant before the request was sent
	fresh   bool           // it was seen by this call
	doubted bool           // a write has failed since, so the next request only reads
}

// New returns the locks that s keeps.
func New(s Store) *Locks {
	return &Locks{store: s, seen: map[string]view{}, leases: map[string]*lease{}}
}

// NewWatched returns the locks that s keeps, at an engine where a waiter must watch the key.
// Because a watch may be slow, a waiter that was granted the lock renews its short lease before it
// begins. All goroutines end with life.
func NewWatched(s Store, life *engine.Life, watch Watch) *Locks {
	l := New(s)
	l.renewsGrants, l.life, l.watch, l.watches = true, life, watch, map[string]*keyWatch{}
	return l
}

// NewClockless is NewWatched for an engine without a clock: see beat. There a grant must be renewed
// before it begins, because other processes may count its lease from an earlier instant.
func NewClockless(s Store, life *engine.Life, watch Watch) *Locks {
	l := NewWatched(s, life, watch)
	l.clockless, l.began, l.beats, l.removing = true, time.Now(), map[string]beats{}, map[string]bool{}
	return l
}

// update replaces the state of purpose.Key with the result of change, and tries again if others
// change the state first. purpose says what for; update sets its other fields. change gets a copy,
// and returns false if there is nothing to change. That ends update if this call has read the state
// itself; otherwise the state is read first. mayHaveRun reports that some attempt had no answer.
func (l *Locks) update(ctx context.Context, purpose Write, change func(s *State, now Time) (bool, error)) (v view, mayHaveRun bool, err error) {
	key, entered := purpose.Key, false
	v = l.lastSeen(key)
	for i := 0; ; i++ {
		at := driver.Now()
		if l.clockless {
			v.now = l.localTime()
		}
		s := v.state.clone()
		s.clockless = l.clockless
		changed, err := change(&s, v.now)
		if (err != nil || !changed) && v.fresh {
			return v, mayHaveRun, err
		}
		w := purpose
		w.Seen, w.Place, w.Look = v.version, v.place, err != nil || !changed || v.doubted
		if !w.Look {
			l.fill(&w, &v.state, &s, v.now)
		}
		a, err := l.store.Swap(ctx, w)
		if !w.Look && w.Value != "" && Version(a.Value) == Version(w.Value) {
			a.Done = true // by an attempt before the one that was answered
		}
		mayHaveRun = mayHaveRun || a.MayHaveRun
		if err != nil {
			l.mu.Lock()
			if seen, ok := l.seen[key]; ok {
				l.seen[key] = view{state: seen.state, now: seen.now, at: seen.at, doubted: true}
			}
			l.mu.Unlock()
			return v, mayHaveRun, err
		}
		if a.Done {
			l.notifyGranted(w.Key, w.Granted)
		}
		if v, err = l.remember(w, a, at, v.now); err != nil || a.Done && !w.Look {
			if err == nil && l.clockless && v.state.idle() && w.Lasts > 0 {
				l.removeLater(key, w.Lasts)
			}
			return v, mayHaveRun, err
		}
		switch { // another write was first
		case w.Look || w.Renews:
		case w.Takes: // holders go first, because a granted lease is short; after the pause v is old
			if i%2 == 1 && !engine.Pause(ctx, min(-at.Left()*time.Duration(min(i, 8)), longestPause)) {
				return v, mayHaveRun, ctx.Err()
			}
		case !entered:
			leave, err := l.retries.Enter(ctx, key+w.retryQueue)
			if err != nil {
				return v, mayHaveRun, err
			}
			defer leave()
			entered, v = true, l.lastSeen(key)
		}
	}
}

// fill sets what is written: s in place of before.
func (l *Locks) fill(w *Write, before, s *State, now Time) {
	for _, p := range before.Queue {
		if find(s.Queue, p.ID) < 0 {
			w.Granted = append(w.Granted, p.ID)
		}
	}
	if len(before.Queue) == 0 && len(s.Queue) > 0 {
		for _, p := range before.In {
			w.Wanted = append(w.Wanted, p.ID)
		}
	}
	version := newVersion()
	if !l.clockless {
		w.Value, w.Lasts = encode(version, s), max(s.lifetime(now), 0)+retention
		return
	}
	if w.Lasts = max(s.lifetime(now), 0); w.Lasts > 0 {
		w.Value = s.withBeats(version)
	}
}

func newVersion() string {
	var b [versionLength / 2]byte
	rand.Read(b[:]) // never fails, according to its documentation
	return hex.EncodeToString(b[:])
}

// lastSeen returns what was at key when it was last seen, or the zero view if that is not known.
func (l *Locks) lastSeen(key string) view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[key]
}

// remember keeps the engine's answer to w as the last view of the key, and returns it. w was sent
// at the instant at, which is now by the clock of this process.
func (l *Locks) remember(w Write, a Answer, at driver.Instant, now Time) (view, error) {
	key := w.Key
	version, s, err := decode(a.Value)
	v := view{version: version, place: a.Place, state: s, now: a.Now, at: at}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		delete(l.seen, key)
		return view{}, err
	}
	if l.clockless {
		own := ""
		if a.Done && !w.Look {
			own = version
		}
		v.now = now
		l.resolveBeatsLocked(key, &v.state, own, now)
	}
	if delete(l.seen, key); version != "" {
		if len(l.seen) >= maxSeen {
			clear(l.seen) // each key will cost a request
		}
		l.seen[key] = v
	}
	v.fresh = true
	return v, nil
}

func (s *State) clone() State {
	c := *s
	c.In = append([]Party(nil), s.In...)
	c.Queue = append([]Party(nil), s.Queue...)
	c.Done = append([]Text(nil), s.Done...)
	return c
}
