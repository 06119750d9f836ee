package failover

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	defaultFailures = 3
	defaultKey      = "lockgen.failover"
)

// Options of a [Backend]. The zero value is the default. Record, Key, Names, LongestTTL and
// Silence must be the same in all processes.
type Options struct {
	// Record is the Backend that keeps the record of which engine grants. It implements
	// driver.Agreement, as redislock, etcdlock, sqllock (by Table) and memlock do. Nil is the first standby.
	//
	// While the Record can't be reached no engine grants. So it should be one that survives
	// the loss of a server without the loss of a write, such as an etcd cluster. If it is the
	// standby, a loss of the primary is covered, and a loss of the standby stops all locks.
	Record driver.Backend
	// Key is the record's key there: "lockgen.failover" unless set. Two failovers with one
	// Record need two keys.
	Key string
	// Names are the names of the primary and the standbys, in that order, in the record:
	// "primary", "standby", "standby 2" and so on unless set. A name stands for one engine for
	// ever.
	Names []string

	// LongestTTL is the longest lease that any process takes: a minute unless set, and ten years
	// at most. A switch waits for it. A ttl above it is ErrInvalid; leave room for lock.Options.HandOff.
	LongestTTL time.Duration
	// Silence is how long the record may stay unread before this process grants nothing
	// any more: 10 s unless set. A switch waits for it as well.
	Silence time.Duration

	// Probe is how often each engine is probed, and the record is read: every second unless
	// set.
	Probe time.Duration
	// Timeout is how long one such question may take: a second unless set.
	Timeout time.Duration
	// Failures is after how many failed probes in a row an engine counts as away, and after
	// how many good ones it counts as well again: 3 unless set.
	Failures int
	// ByHand leaves all switching to [Backend.Switch].
	ByHand bool
	// OnSwitch, if set, is called in each process when the record says something new. It is
	// called by one goroutine at a time, and must not block.
	OnSwitch func(Status)
}

func (o *Options) complete(members int) {
	o.Key = cmp.Or(o.Key, defaultKey)
	if o.Failures <= 0 {
		o.Failures = defaultFailures
	}
	if o.Names == nil {
		o.Names = []string{"primary", "standby"}
		for i := 2; i < members; i++ {
			o.Names = append(o.Names, fmt.Sprintf("standby %d", i))
		}
	}
}

// Backend takes locks at one of its engines, on which all processes agree. Make it with
// [New]; its methods may be called from any number of goroutines.
type Backend struct {
	options Options
	terms   engine.Terms // as Options say
	members []*member
	record  engine.Agreed[state]

	group         *engine.Group       // the engines, and the Record
	ceilingRaises engine.SingleFlight // one at a time, for all callers that need it

	mu         sync.Mutex                          // guards the rest, and epochs
	epoch      *epoch                              // the latest; nil: none is known yet
	recordLost bool                                // the record is gone, or older than what this process has read before
	recordText string                              // what the last look found
	recordErr  error                               // of the last look, or of writing the record since then
	openErr    error                               // why the last try to open epoch failed, or nil
	former     map[*member]driver.Instant          // engines that Undo also goes to, and until when
	waiting    map[engine.Place]driver.Acquisition // in the queues of epoch's engine
}

// New returns a Backend that takes locks at primary, or after a switch at one of standbys, with
// the last of options. It does no I/O. Close closes the engines and the Record, which may be used
// beside the Backend.
//
// If there is no standby, one is nil or there twice, or there is no place for the record, every
// call and Ping return an error; also if two engines are one server, once both have answered.
func New(primary driver.Backend, standbys []driver.Backend, options ...Options) *Backend {
	b := &Backend{
		group:  engine.NewGroup("failover"),
		former: map[*member]driver.Instant{}, waiting: map[engine.Place]driver.Acquisition{},
	}
	for _, o := range options {
		b.options = o
	}
	engines := append([]driver.Backend{primary}, standbys...)
	b.options.complete(len(engines))
	o := b.options
	b.terms = engine.Terms{LongestTTL: o.LongestTTL, Silence: o.Silence, Probe: o.Probe, Timeout: o.Timeout}.Complete()
	if len(standbys) == 0 {
		b.group.Refuse("New got no standby; give it one engine or more to switch to")
	}
	if len(b.options.Names) != len(engines) {
		b.group.Refuse("Options.Names has %d names for %d engines; give each its own, the primary's first", len(b.options.Names), len(engines))
		return b
	}
	for i, e := range engines {
		b.add(b.options.Names[i], e)
	}
	b.chooseRecord(engines)
	b.group.Start = func() {
		b.group.Life.Go(b.watch)
		for _, m := range b.members {
			b.group.Life.Go(m.watch)
		}
	}
	return b
}

// add makes e one of the engines.
func (b *Backend) add(name string, e driver.Backend) {
	for _, m := range b.members {
		if m.name == name {
			b.group.Refuse("two engines are named %q in Options.Names; give each a name of its own", name)
		}
	}
	if b.group.Add(name, e) {
		b.members = append(b.members, &member{Backend: e, name: name, backend: b})
	}
}

// chooseRecord chooses the engine that keeps the record.
func (b *Backend) chooseRecord(engines []driver.Backend) {
	at := b.options.Record
	switch {
	case at == nil && len(engines) > 1:
		at = engines[1]
	case at != nil && engine.Same(at, engines[0]):
		b.group.Refuse("Options.Record is the primary, whose loss nobody could then agree on; give it the standby or a third engine")
	}
	record, ok := at.(driver.Agreement)
	if !ok {
		b.group.Refuse("there is no place for the record of which engine grants: a %T does not implement driver.Agreement; "+
			"set Options.Record to a Backend that is, such as etcdlock.New or redislock.New returns", at)
		return
	}
	b.record = engine.Agreed[state]{Of: "which engine grants", Key: b.options.Key, At: record, Terms: b.terms, Life: b.group.Life, Learn: b.learn}
	b.group.Keep(at)
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.group.Attach() }

// Close implements [driver.Backend]: the last Locker to close ends what runs in the
// background, and closes the engines and the Record.
func (b *Backend) Close() (err error) { return b.group.Close(0) }

// Ping implements [driver.Pinger]: the record can be read, the engine that it names grants,
// and answers.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	e, err := b.current(ctx)
	if err != nil {
		return err
	}
	return e.member.ping(ctx)
}

// AtOnce implements [driver.Bounded].
func (b *Backend) AtOnce() int { return b.group.AtOnce() }

// Servers implements [driver.Located].
func (b *Backend) Servers() []string { return b.group.Servers() }
