package lock

import (
	"context"
	"fmt"
	"hash/maphash"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// New returns a Locker whose locks live at b. It does no I/O; an engine that
// can't be reached shows at the first acquire. It panics if b is nil.
//
// A Locker must be closed: goroutines and connections of its backends live until then. Lockers
// may share b, which the last of them closes for good. A Locker that is out of reach, holds
// nothing and was not closed is told to the Observer as [Unclosed] when the garbage collector
// finds it.
func New(b Backend, opts *Options) *Locker {
	if b == nil {
		panic("lock: New needs a Backend, got nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	l := &Locker{
		id:       newUUID(),
		seed:     maphash.MakeSeed(),
		own:      b,
		backends: map[string]driver.Backend{"": b},
		handOff:  opts.HandOff,
		name:     opts.Name,
		observer: opts.Observer,
		prefix:   opts.Prefix,
		defaults: Policy{TTL: opts.TTL, Wait: opts.Wait},
		idle:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}
	l.openCtx, l.beginClose = context.WithCancel(context.Background())
	l.patterns = opts.mustValidate()
	if l.handOff == 0 {
		l.handOff = DefaultHandOff
	}
	if l.name == "" {
		host, _ := os.Hostname() // empty where the system does not tell
		l.name = host + ":" + strconv.Itoa(os.Getpid())
	}
	for name, named := range opts.Backends {
		if name == "" || named == nil {
			panic(fmt.Sprintf("lock: Options.Backends[%q] is a %T; it needs a name and a Backend", name, named)) // %v would print passwords
		}
		l.backends[name] = named
	}
	l.waiters.New = func() any { return &waiter{turn: make(chan turn, 1)} }
	for i := range l.shards {
		l.shards[i].entries, l.shards[i].groups = map[entryID]*entry{}, map[entryID]*group{}
	}
	l.watchdog.init(l)
	l.cleanup.init()
	l.registrations = newRegistrations(l)
	l.waits = waitsOfProcess
	l.notes = newNoteWork()
	for _, b := range l.backends {
		if s, ok := b.(driver.Shared); ok {
			s.Attach()
		}
	}
	if l.observer != nil {
		l.unclosed = runtime.AddCleanup(l, tellUnclosed, l.observer)
	}
	return l
}

// DefaultHandOff is how long, by default, one process hands a lease from goroutine to
// goroutine before other processes get their turn.
const DefaultHandOff = 20 * time.Millisecond
