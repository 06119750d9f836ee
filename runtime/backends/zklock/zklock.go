package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// DefaultRoot is where locks live unless [Options] says otherwise.
const DefaultRoot = "/lockgen"

// Auth is one identity of a client, as zk.Conn.AddAuth takes it: for the scheme
// "digest" the bytes are "user:password".
type Auth struct {
	Scheme string
	Auth   []byte
}

// Options of a [Backend]. The zero value is the default, and so is nil.
type Options struct {
	// Root is the path below which each key has a directory; DefaultRoot if
	// empty. It is made when it is missing.
	Root string

	// Auth is added to each session, again after each reconnection.
	Auth []Auth

	// ACL is that of every node that the Backend makes: directories and the
	// nodes in them. Unset it is zk.WorldACL(zk.PermAll), as it is for the
	// established clients: whoever reaches the server may then take and free
	// the locks.
	ACL []zk.ACL

	// Dialer dials the servers; unset, TCP. It is for TLS:
	//
	//	func(network, address string, timeout time.Duration) (net.Conn, error) {
	//		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
	//	}
	//
	// It must return within the timeout.
	Dialer zk.Dialer

	// Logger gets what the client library has to say. Unset, nobody: the
	// library's own default writes to the log of the process.
	Logger zk.Logger

	// TickTime is the servers' tickTime, or more. Unset it is half of the
	// shortest session that they grant, which is two ticks unless
	// minSessionTimeout is configured. Where that is set below one tick, say
	// TickTime here: the end of a lease is reckoned with it.
	TickTime time.Duration
}

// Backend keeps locks in ZooKeeper. Make it with [New]; its methods may be
// called from any number of goroutines.
type Backend struct {
	servers []string
	root    string
	probe   string // the path of a node that never is
	options Options
	acl     []zk.ACL
	auth    []Auth

	renewing chan struct{} // bounds the renewals under way

	users  atomic.Int64   // Lockers that attached and did not close
	work   sync.WaitGroup // every goroutine
	asking context.Context
	cancel context.CancelFunc // of asking

	mu            sync.Mutex
	closed        bool
	limits        *limits // of the servers; nil until asked
	sessions      map[time.Duration]*session
	line          map[spot]*place   // those that wait for their Locker
	attempts      map[string]*place // by the id of the acquisition that uses it
	named         map[string]*place // by the name of its node, which the first of its acquisitions gave it
	subscriptions map[spot]*subscription
	calm          map[string]int32 // directories that nobody was in when we left, and the next number there
}

// New returns a Backend for the ensemble of servers, "host:port" each, port 2181
// unless given. It does no I/O; servers that can't be reached show at the first
// acquire, at once. It panics if there are no servers or Options.Root is no
// absolute path.
//
// It connects by itself, once for each length of leases, because a lease's
// length is its session's timeout.
func New(servers []string, options ...Options) *Backend {
	if len(servers) == 0 {
		panic("zklock: New needs the address of a ZooKeeper server, host:port")
	}
	var opts Options
	for _, o := range options {
		opts = o
	}
	b := &Backend{
		servers:       slices.Clone(servers),
		root:          opts.Root,
		options:       opts,
		acl:           opts.ACL,
		auth:          opts.Auth,
		sessions:      map[time.Duration]*session{},
		line:          map[spot]*place{},
		attempts:      map[string]*place{},
		named:         map[string]*place{},
		subscriptions: map[spot]*subscription{},
		calm:          map[string]int32{},
		renewing:      make(chan struct{}, renewAtOnce),
	}
	b.asking, b.cancel = context.WithCancel(context.Background())
	if b.root == "" {
		b.root = DefaultRoot
	}
	if !strings.HasPrefix(b.root, "/") || path.Clean(b.root) != b.root {
		panic(fmt.Sprintf("zklock: Options.Root = %q; it must be an absolute path without a slash at its end, like %q", b.root, DefaultRoot))
	}
	b.probe = path.Join(b.root, probeName)
	if b.acl == nil {
		b.acl = zk.WorldACL(zk.PermAll)
	}
	return b
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.users.Add(1) }

// Close implements [driver.Backend]: the last Locker to close ends the sessions,
// and with them every lock that is left. It takes a second at most where the
// servers do not answer.
func (b *Backend) Close() error {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.mu.Lock()
	b.closed = true
	var all []*session
	for _, s := range b.sessions {
		all = append(all, s)
	}
	b.mu.Unlock()
	b.cancel()
	for _, s := range all {
		s.giveUp(driver.ErrClosed)
		s.end(errRetired)
	}
	b.work.Wait()
	return nil
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	dir, err := b.directory(a.Key)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s, err := b.enter(ctx, a.TTL)
		if err != nil {
			return nil, explained(err, "take a lock", dir)
		}
		sent := driver.Now() // a first acquire connects before it sends anything
		p, held := b.stand(s, a, dir)
		if held != nil { // the same acquisition, once more
			<-s.gate
			err := held.prolong(earlier(sent.Add(a.TTL), held.place.session.deadline()))
			return held, err
		}
		lease, err := p.compete(ctx, a, sent)
		<-s.gate
		if err == nil {
			return lease, nil
		}
		if errors.Is(err, errGone) && try < goneTries && !b.isUndone(p) {
			b.drop(p)
			continue
		}
		return nil, b.failed(ctx, p, a, err)
	}
}

// goneTries is how often an acquire begins anew because its node is gone: its
// session has expired, or somebody has deleted it.
const goneTries = 4

// failed leaves p, after an acquire that ended with err, as a wants it.
func (b *Backend) failed(ctx context.Context, p *place, a *driver.Acquisition, err error) error {
	var held *driver.HeldError
	isHeld, unknown := errors.As(err, &held), p.unsettled()
	switch stays, exists := b.left(p, !final(err)); {
	case !exists:
	case !stays:
		if p.leave(ctx) != nil {
			a.MayHaveRun = true
		}
	case !isHeld:
		a.MayHaveRun = true // so that Undo is called, or the next in line uses the place
	}
	switch {
	case isHeld:
		return held
	case unknown && !errors.Is(err, driver.ErrIndeterminate):
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return explained(err, "take a lock", p.dir)
}

// Undo implements [driver.Backend]. The node is deleted by its path where that is
// known, and found by its protection id where the reply to its creation was
// lost; see place.clear for why no creation comes after that. A place in the
// line stays unless a.Queue says to give it up.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	dir, err := b.directory(a.Key)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	b.mu.Lock()
	all, known := b.placesOf(a)
	for _, p := range all {
		if p.lease != nil {
			p.lease.end()
		}
		p.doom() // before another acquisition takes it over
	}
	var s *session
	for _, one := range b.sessions {
		s = one
	}
	b.mu.Unlock()
	for _, p := range all {
		if err := p.remove(ctx); err != nil {
			return err
		}
	}
	if known || s == nil || !closed(s.opened) || s.failed != nil {
		return nil
	}
	// Not of this Backend's making, as far as it knows: the ensemble may know more.
	other := &place{session: s, dir: dir, name: protection(a.ID), state: unknown}
	return explained(other.erase(ctx), "undo an acquire", dir)
}

// placesOf returns the places that go with the acquisition a, and whether the node
// that it may have made is known here: then it is one of these, or it serves a
// later acquisition of its Locker, which may hold the lock by it. b.mu is held.
func (b *Backend) placesOf(a *driver.Acquisition) (all []*place, known bool) {
	own := b.attempts[a.ID]
	if own != nil && own.spot.key != a.Key {
		own = nil
	}
	if own != nil && (a.Queue || b.line[own.spot] != own) {
		all = append(all, own)
	}
	if p := b.line[spotOf(a)]; a.Queue && p != nil && p != own && !a.BegunBefore(p.wanted) {
		if p.using { // by one that does not wait, and leaves no place behind now
			p.wanted = ""
		} else {
			all = append(all, p)
		}
	}
	made := b.named[protection(a.ID)]
	return all, own != nil || len(all) > 0 || made != nil && made.spot.key == a.Key
}

// Subscribe implements [driver.Notifier]. The watch is set by each Acquire that
// finds the key held, before it returns, so that nothing is to be asked here.
func (b *Backend) Subscribe(_ context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	s := &subscription{backend: b, spot: spotOf(a), c: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscriptions[s.spot] = s
	return s, nil
}

// RenewAll implements [driver.BatchRenewer]. What the session's own proof covers is
// renewed at once, without a request; then those that nothing watches yet are
// looked after, a few at a time.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	var rest []int
	for i, one := range leases {
		if renewed, watched := one.(*lease).renewedNow(ttls[i]); !renewed || !watched {
			rest = append(rest, i)
			errs[i] = errNotRenewed
			if renewed {
				errs[i] = nil
			}
		}
	}
	var all sync.WaitGroup
	for _, i := range rest {
		select {
		case b.renewing <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		all.Go(func() {
			defer func() { <-b.renewing }()
			err := leases[i].Renew(ctx, ttls[i])
			if errs[i] != nil || errors.Is(err, driver.ErrLost) {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errs
}

var errNotRenewed = errors.New("there was no time to renew the lease")

// renewAtOnce bounds the goroutines that renew. The first renewal of a lease
// sets a watch on its node; all others need no request.
const renewAtOnce = 8

// subscription is a Locker's interest in one key.
type subscription struct {
	backend *Backend
	spot    spot
	c       chan struct{}
}

func (s *subscription) C() <-chan struct{} { return s.c }

func (s *subscription) Close() {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscriptions[s.spot] == s {
		delete(b.subscriptions, s.spot)
	}
}

// notify tells the Locker of sp that it may be its turn.
func (b *Backend) notify(sp spot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.subscriptions[sp]; s != nil {
		select {
		case s.c <- struct{}{}:
		default:
		}
	}
}
