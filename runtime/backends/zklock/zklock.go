package zklock

import (
	"context"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// DefaultRoot is Options.Root unless that is set.
const DefaultRoot = "/lockgen"

const defaultPort = "2181"

// Auth is one identity of a client, as zk.Conn.AddAuth takes it: for the scheme
// "digest" the bytes are "user:password".
type Auth struct {
	Scheme string // as "digest"
	Auth   []byte // what the scheme asks for
}

// Options of a [Backend]. The zero value is the default, and so are no Options.
type Options struct {
	// Root is the path below which each key has a directory; DefaultRoot if
	// empty. It is made when it is missing. A path that other clients have behind
	// the servers' addresses ("zk:2181/app") goes before it.
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

	// Logger is told why a connection ended, or could not be had; unset, nobody
	// is. It must not block.
	Logger zk.Logger

	// TickTime is the servers' tickTime, or more. Unset it is half of the
	// shortest session that they grant, which is two ticks unless
	// minSessionTimeout is configured. Where that is set below one tick, say
	// TickTime here: the end of a lease is reckoned with it.
	TickTime time.Duration
}

// Backend keeps locks in ZooKeeper. Make it with [New] or [Open]; its methods may be
// called from any number of goroutines.
type Backend struct {
	servers   []string
	invalid   error // what is wrong with the servers' addresses, or nil
	root      string
	probePath string // the path of a node that never exists
	options   Options
	life      *engine.Life
	kinds     *record.Locks // the locks that are no mutexes
	methods
	hub      engine.Hub[engine.Place] // of calls that wait for a mutex
	turns    engine.KeyedMutex[engine.Place]
	sessions *engine.Sessions[class, *session]

	limitsCall engine.SingleFlight    // asks the servers for limits
	limits     atomic.Pointer[limits] // nil until the servers were asked

	mu      sync.Mutex // guards the rest
	entries map[engine.Place]*entry
	leases  map[string]*lease // by the ID of the acquisition, as long as the node may exist
}

// New returns a Backend for the ensemble of servers, "host:port" each, port 2181
// unless given. It does no I/O; servers that can't be reached show at the first
// acquire, at once. It panics if there are no servers or Options.Root is no
// absolute path. Of several Options the last counts.
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
	b := &Backend{root: opts.Root, options: opts, life: engine.NewLife()}
	b.sessions = engine.NewSessions(b.life, b.newSession, b.undo)
	b.entries, b.leases = map[engine.Place]*entry{}, map[string]*lease{}
	st := &store{b}
	b.kinds = record.NewClockless(st, b.life, st.watchRecord)
	b.methods = b.kinds.Methods()
	if b.root == "" {
		b.root = DefaultRoot
	}
	if !strings.HasPrefix(b.root, "/") || path.Clean(b.root) != b.root {
		panic(fmt.Sprintf("zklock: Options.Root = %q; it must be an absolute path without a slash at its end, like %q", b.root, DefaultRoot))
	}
	b.servers, b.invalid = addresses(servers, b.root)
	b.probePath = path.Join(b.root, probeName)
	if b.options.ACL == nil {
		b.options.ACL = zk.WorldACL(zk.PermAll)
	}
	if b.options.Dialer == nil {
		b.options.Dialer = net.DialTimeout
	}
	return b
}

// Servers implements [driver.Located].
func (b *Backend) Servers() []string { return b.servers }

// addresses returns servers with a port each.
func addresses(servers []string, root string) (all []string, err error) {
	for _, server := range servers {
		if address, chroot, ok := strings.Cut(server, "/"); ok {
			return nil, fmt.Errorf("%w: the server %q: zklock takes no path behind an address; give %q, and %q as Options.Root",
				driver.ErrInvalid, server, address, path.Join("/", chroot, root))
		}
		if strings.Contains(server, ",") {
			return nil, fmt.Errorf("%w: the server %q: give New each server by itself", driver.ErrInvalid, server)
		}
		all = append(all, engine.WithPort(server, defaultPort))
	}
	return all, nil
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: the last Locker to close ends the sessions,
// and with them every lock that is left. It takes a second at most where the
// servers do not answer.
func (b *Backend) Close() error {
	b.life.Close(b.sessions.Close)
	return nil
}

// Ping implements [driver.Pinger]: it connects, and shows the Options' Auth.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.grantedTimeout(ctx, shortSession)
	return explained(err, "begin a session", "all servers")
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	dir, err := b.directory(a.Key)
	if err != nil {
		return nil, err
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Acquire(ctx, a)
	}
	e, leave, err := b.enter(ctx, engine.PlaceOf(a))
	if err != nil {
		return nil, explained(err, "take a lock", dir)
	}
	defer leave()
	l, err := e.acquire(ctx, a, dir)
	return l, explained(err, "take a lock", dir)
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	dir, err := b.directory(a.Key)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	return explained(b.sessions.Undo(ctx, a), "undo an acquire", dir)
}

// Subscribe implements [driver.Notifier]. The watch is set by each Acquire that
// finds the key held, before it returns, so Subscribe sends no request.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if a.Mode.Kind != 0 {
		return b.kinds.Subscribe(ctx, a)
	}
	s := b.hub.Subscribe(engine.PlaceOf(a), nil)
	return s, nil
}

// RenewAll implements [driver.BatchRenewer].
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(ctx, leases, ttls, b.renew)
}
