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
	// About says how the library is configured, and why.
	About() string
	// Start makes what one process has of the library. It fails if the library
	// connects at once and the server can't be reached.
	Start(Options) (Instance, error)
	// ServerKey is the name of the Redis key that holds the lock on key.
	ServerKey(key string) string
	// RequestOf says what a request is for. words are the request's command and
	// arguments, script is the text of the script that it calls, or "".
	RequestOf(words []string, script string) Request
	// SaysTaken reports whether err, of a failed Acquire, says that another owner
	// has the lock, or no more than that the lock was not acquired.
	SaysTaken(err error) bool
	// AsksServer reports whether Held.Check sends a request. Then its answer is as
	// old as the reply, and it is not asked on behalf of another worker.
	AsksServer() bool
}

// Request is what a request to the server is for.
type Request int

// What requests are for.
const (
	None    Request = iota // no lock's business
	Other                  // a renewal or a look at a lock
	Acquire                // it may take a lock
	Release                // it may free a lock
)

// Options is what a process gives to its library.
type Options struct {
	// TTL is the length of a lease.
	TTL time.Duration
	// Timeout is how long the client waits for an answer; 0 is its own default.
	Timeout time.Duration
	// HandOff is lock.Options.HandOff, which ours alone has.
	HandOff time.Duration
	// Dial connects to the server, whatever the address.
	Dial func(ctx context.Context) (net.Conn, error)
	// Gate returns when the process runs. What a program adds to its library calls
	// it before each step.
	Gate func()
}

// Instance is what one process has of a library: its connections and local state.
type Instance interface {
	// Acquire waits for the lock on key for wait: not at all if it is 0, until ctx
	// ends if it is negative. A hold that is renewed by its library or by a goroutine
	// of the adapter lasts until Release, or until ctx ends if the library says so.
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
	// Token is the fencing token, and false if the library has none.
	Token() (uint64, bool)
	// Release frees the lock. It returns nil if the lock was held until then.
	Release(ctx context.Context) error
}

// Errors of Held.
var (
	ErrUnknown = errors.New("peers: it is not known whether the lock is held")
	ErrNotHeld = errors.New("peers: the lock is not held")
)

// All are the libraries in the order of the report. The last is ours.
var All = []Peer{redsyncPeer{}, redislockPeer{}, rueidislockPeer{}, lockgenPeer{}}

// newClient returns a client as go-redis comes, the same for every library that
// takes one.
func newClient(o Options) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: address, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(ctx context.Context, _, _ string) (net.Conn, error) { return o.Dial(ctx) },
	})
}

// address is what clients believe that they dial.
const address = "sim:6379"

// bounded returns ctx with an end after wait, unless wait is negative.
func bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, wait)
}

// renewEvery is how often a lease is renewed by adapters of libraries that don't do
// it themselves: at a third of its length, as ours does.
func renewEvery(ttl time.Duration) time.Duration { return ttl / 3 }
