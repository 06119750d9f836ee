package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
)

// closeLimit is how long Close waits for the server to take the sessions back.
// What it does not take by then ends by itself.
const closeLimit = 500 * time.Millisecond

// Options of a [Backend]. The zero value is the default, and so is nil.
type Options struct {
	// AttemptTimeout is how long one request may go without an answer before it
	// is sent again, to another member where there are several: 1s unless set.
	AttemptTimeout time.Duration
}

// Backend keeps locks in etcd. Make it with [New]; its methods may be called
// from any number of goroutines.
type Backend struct {
	client  *clientv3.Client
	conn    *grpc.ClientConn
	kv      pb.KVClient
	leases  pb.LeaseClient
	options Options

	patience patience
	users    atomic.Int64 // Lockers that attached and did not close
	once     sync.Once
	closed   context.Context
	shut     context.CancelFunc
	work     sync.WaitGroup // sessions and what else runs in the background

	mu       sync.Mutex // guards the maps, and what their elements say that it does
	sessions map[class]*session
	dying    map[*session]struct{} // ended here, perhaps not yet at the server
	places   map[placeID]*place
	undone   map[string]time.Time // acquisitions that must not succeed any more
}

// New returns a Backend on the servers of client, which [clientv3.New] must have made;
// it panics on a nil client. It does no I/O, and never closes client. client must stay
// open until the last Locker on the Backend is closed.
func New(client *clientv3.Client, options ...Options) *Backend {
	if client == nil || client.ActiveConnection() == nil {
		panic("etcdlock: New needs a client made by clientv3.New")
	}
	b := &Backend{
		client: client,
		conn:   client.ActiveConnection(),
		// Not the client's own KV and Lease: they wait for a server that is absent
		// until the context ends, and repeat some requests behind our back.
		kv:       pb.NewKVClient(client.ActiveConnection()),
		leases:   pb.NewLeaseClient(client.ActiveConnection()),
		sessions: map[class]*session{},
		dying:    map[*session]struct{}{},
		places:   map[placeID]*place{},
		undone:   map[string]time.Time{},
	}
	b.closed, b.shut = context.WithCancel(context.Background())
	for _, o := range options {
		b.options = o
	}
	if b.options.AttemptTimeout <= 0 {
		b.options.AttemptTimeout = time.Second
	}
	return b
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.users.Add(1) }

// Close implements [driver.Backend]: the last Locker to close gives the sessions
// back to the server, within half a second, or a whole one if it was at that already
// for one that has ended.
func (b *Backend) Close() error {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.once.Do(func() {
		b.mu.Lock()
		b.shut()
		var all []*session
		for _, s := range b.sessions {
			all = append(all, s)
		}
		b.mu.Unlock()
		for _, s := range all {
			s.end(errClosed)
		}
		b.work.Wait()
		b.patience.rest()
	})
	return nil
}

var (
	errClosed       = errors.New("etcdlock: the backend is closed")
	errClientClosed = errors.New("etcdlock: the client was closed; it must stay open until the last Locker on it is closed")
	errUndone       = errors.New("the acquisition was undone already")
)

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	k, err := keysOf(a)
	if err != nil {
		return nil, err
	}
	seconds, err := secondsFor(a.TTL)
	if err != nil {
		return nil, err
	}
	if b.isUndone(a.ID) {
		return nil, errUndone
	}
	p, err := b.enter(ctx, k)
	if err != nil {
		return nil, err
	}
	defer p.leave()
	for {
		s, err := b.session(ctx, class{k.locker, seconds})
		if err != nil {
			// What we had in a session that ended meanwhile is to be given up.
			a.MayBeGranted = a.MayBeGranted || p.serves(a)
			return nil, err
		}
		lease, err := p.acquire(ctx, s, a)
		s.drop()
		if !errors.Is(err, errSessionEnded) {
			return lease, err
		}
		// The session ended meanwhile, at the server or by our clock, and with it
		// whatever was taken: again, on a new one.
	}
}

// Undo implements [driver.Backend]. What fails is owed by the sessions as well: the
// Locker gives up when the lease that was asked for is over, and a session goes on.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	k, err := keysOf(a)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	if a.MayHaveRun {
		b.ban(a.ID)
	}
	d := debt{keys: k, late: a.MayHaveRun, queue: a.Queue}
	p, err := b.enter(ctx, k)
	if err == nil {
		defer p.leave()
		err = p.undo(ctx, a)
	}
	for _, s := range b.sessionsOf(k.locker) {
		if err != nil {
			s.owe(d)
		} else {
			s.settle(k)
		}
	}
	return err
}

// undo is Undo, in p's turn.
func (p *place) undo(ctx context.Context, a *driver.Acquisition) (err error) {
	known := true
	if l := p.holder(); l != nil && l.id == a.ID {
		err = l.Release(ctx, 0)
	} else if p.serves(a) {
		err = p.giveUp(ctx)
	} else {
		known = false
	}
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	if known && !a.MayHaveRun {
		return nil
	}
	err = nil
	for _, s := range p.backend.sessionsOf(p.keys.locker) {
		failed := s.undo(ctx, p.keys, a.MayHaveRun)
		switch {
		case errors.Is(failed, rpctypes.ErrNoSpace): // but it has freed the key, and so may the others
			err = failed
		case failed != nil:
			return failed
		}
	}
	return err
}

// ban notes that the acquisition with this id must not succeed any more.
func (b *Backend) ban(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for old, at := range b.undone {
		if now.Sub(at) > straggler {
			delete(b.undone, old)
		}
	}
	b.undone[id] = now
}

func (b *Backend) isUndone(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, undone := b.undone[id]
	return undone
}

// keys are the names of what one acquisition writes.
type keys struct {
	lock   string
	prefix string // of the contenders
	tomb   string // what the marks that it was undone begin with
	id     string
	locker string
}

// mark is the key that says so in s. Each session has one of its own: it goes with the
// lease that it is on, and must last as long as an attempt in that session may come.
func (k keys) mark(s *session) string { return k.tomb + "/" + s.suffix }

// maxKey is the longest key taken, in bytes: as long as a name that a person
// can still read, and a small part of what a request carries.
const maxKey = 1024

func keysOf(a *driver.Acquisition) (keys, error) {
	if n := len(a.Key); n == 0 || n > maxKey {
		return keys{}, fmt.Errorf("%w: the key has %d bytes; etcdlock takes 1 to %d (hash what is longer)", driver.ErrInvalid, n, maxKey)
	}
	locker, _, _ := strings.Cut(a.ID, ":")
	return keys{
		lock:   a.Key,
		prefix: a.Key + "/",
		// More than one slash, so that a mark is a contender of no lock that encloses this one.
		tomb:   a.Key + ".lockgen/undone/" + a.ID,
		id:     a.ID,
		locker: locker,
	}, nil
}

// maxTTL is the longest lease: etcd's own limit, less the second that is added.
const maxTTL = (clientv3.MaxLeaseTTL - 1) * time.Second

// secondsFor returns the ttl of the session for leases of length ttl: the next
// whole second above. Above, and not the next one from ttl on: a lease that is
// handed on inside a process must begin each hold with a whole ttl ahead, and
// a session is not kept alive anew for each.
func secondsFor(ttl time.Duration) (int64, error) {
	if ttl <= 0 || ttl > maxTTL {
		return 0, fmt.Errorf("%w: a lease of %v; etcdlock takes from above 0 s to %v (%d s)", driver.ErrInvalid, ttl, maxTTL, int64(maxTTL/time.Second))
	}
	return int64(ttl/time.Second) + 1, nil
}
