package peers

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Peer is one lock library in one configuration.
type Peer interface {
	// Name is the library's name in reports.
	Name() string
	// About describes the library's configuration with the reasons.
	About() string
	// Start makes the instance of one process. It fails if the library
	// connects at once and the server can't be reached.
	Start(Options) (Instance, error)
	// ServerKey returns the name of the Redis key that holds the lock on key.
	ServerKey(key string) string
	// RequestOf returns the purpose of a request. words are the request's command and
	// arguments, script is the text of the script that it calls, or "".
	RequestOf(words []string, script string) Request
	// SaysTaken reports whether err, the error of a failed Acquire, says that another owner
	// has the lock, or only that the lock was not acquired.
	SaysTaken(err error) bool
	// AsksServer reports whether Held.Check sends a request. Then its result may be as
	// old as the reply, and the oracles do not call it for another worker's hold.
	AsksServer() bool
}

// Request is the purpose of a request to the server.
type Request int

// Purposes of requests.
const (
	None    Request = iota // not about a lock
	Other                  // renews or reads a lock
	Acquire                // may acquire a lock
	Release                // may free a lock
)

// Options are the options of a library in one process.
type Options struct {
	// TTL is the length of a lease.
	TTL time.Duration
	// Timeout is how long the client waits for an answer. 0 means its default.
	Timeout time.Duration
	// HandOff is lock.Options.HandOff, which only ours has.
	HandOff time.Duration
	// Dial connects to the server. It ignores the address.
	Dial func(ctx context.Context) (net.Conn, error)
	// Gate waits until the process runs. The adapters call it before each step of
	// their own.
	Gate func()
}

// Instance holds the connections and the local state of a library in one process.
type Instance interface {
	// Acquire waits for the lock on key for wait: not at all if wait is 0, until ctx
	// ends if it is negative. The library or a goroutine of the adapter renews the
	// hold until Release, or until ctx ends if the library works in this way.
	Acquire(ctx context.Context, key string, wait time.Duration) (Held, error)
	// Close ends the instance. Locks that are held may stay until they expire.
	Close() error
}

// Held is one lock that was acquired.
type Held interface {
	// Context ends when the lock is known to be lost. It is context.Background if
	// the library does not tell.
	Context() context.Context
	// Check returns nil if the lock is held, ErrUnknown if that can't be found out,
	// and another error if it is not.
	Check(ctx context.Context) error
	// Token returns the fencing token, or false if the library has none.
	Token() (uint64, bool)
	// Release frees the lock. It returns nil if the lock was held until then.
	Release(ctx context.Context) error
}

// Errors of Held.
var (
	ErrUnknown = errors.New("peers: it is not known whether the lock is held")
	ErrNotHeld = errors.New("peers: the lock is not held")
)

// All lists the libraries in the order of the report. The last is ours.
var All = []Peer{redsyncPeer{}, redislockPeer{}, rueidislockPeer{}, lockgenPeer{}}

// newClient returns a client with go-redis's defaults, the same for every library that
// uses one.
func newClient(o Options) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
	})
}

// address is the address that clients are configured with. Dial ignores it.
const address = "sim:6379"

// bounded returns ctx with a timeout of wait, unless wait is negative.
func bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, wait)
}

// renewEvery returns the interval at which adapters renew a lease if their library does not: a
// third of the lease, as in our library.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 3 }
