// Package peers gives one interface to the lock libraries that are compared.
// Each file is one library, with the reasons for its configuration.
package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Peer is one lock library in one configuration.
type Peer struct {
	Name  string
	About string // the configuration, for the report
	// Program is a build of the benchmark with another version of the peer; empty
	// for the build that runs.
	Program string

	// Rival reports whether it is another lock library, of which ours is compared with
	// the best. It is false for ours and for the floors.
	Rival bool
	// InProcess reports whether it locks only between the goroutines of one process.
	InProcess bool
	// Direct lists the data commands that its client sends. All its other
	// data commands are called by scripts, so they are not commands of a client.
	Direct []string
	// RenewEvery returns the interval at which it renews a lease of ttl by itself; nil if it does not renew.
	RenewEvery func(ttl time.Duration) time.Duration
	// ServerKey is the name of the Redis key that holds the lock; nil if it is
	// the lock's own name.
	ServerKey func(key string) string

	Open func(addr string, ttl time.Duration) (Client, error)

	// Laps returns the program that does a worker's part of a workload of kinds;
	// nil if the Client of Open does it. A peer with Laps takes part only in these workloads.
	Laps func(l Laps) *exec.Cmd
	// Missing returns what it lacks to take part; nil if it needs nothing special.
	Missing func() error
}

// Kind is the kind of lock of a workload of kinds.
type Kind string

// The kinds.
const (
	Readers Kind = "readers" // a read-write lock with readers only
	Reads   Kind = "reads"   // a read-write lock: one section in twenty writes
	Permits Kind = "permits" // a semaphore of PermitsOf
	Fair    Kind = "fair"    // a fair lock
)

// PermitsOf is the number of permits of the semaphore in a workload of kinds.
const PermitsOf = 8

// Writes reports whether section n of a read-write lock writes.
func Writes(n uint64) bool { return n%20 == 0 }

// Laps is one process of a workload of kinds.
type Laps struct {
	Kind       Kind
	Addr, Key  string
	TTL        time.Duration
	Goroutines int
	Section    time.Duration // in whole milliseconds
}

// KindClient is a Client that has locks other than mutexes.
type KindClient interface {
	Client
	// LockKind is like Lock, for another kind. n counts the sections of a goroutine. alone reports that
	// nobody else is inside.
	LockKind(ctx context.Context, kind Kind, key string, n uint64) (l Lease, alone bool, err error)
}

// Client holds the connections and the local state of one process.
type Client interface {
	// Lock waits for the lock on key until ctx ends. ctx has a deadline.
	Lock(ctx context.Context, key string) (Lease, error)
	Close() error
}

// Keeper is implemented by a Client whose process can keep released locks.
type Keeper interface {
	// Keep makes the process keep each released lock for d, from the next call of Lock on.
	Keep(d time.Duration)
}

// Lease is one hold.
type Lease interface {
	// Unlock also returns an error if the lock was no longer held.
	Unlock(ctx context.Context) error
	// Token returns the fencing token, or 0 if the library has none.
	Token() uint64
}

// Ours is the name of this project's library.
const Ours = "lockgen"

// Ours reports whether the peer is lockgen, in this build or in an earlier one.
func (p *Peer) Ours() bool { return p.Name == Ours || p.Program != "" }

// Names of the floors, which do the least that a lock needs: two commands.
const (
	Raw        = "raw"
	RawWide    = "raw-64"
	RawRueidis = "raw-rueidis"
	RawPubSub  = "raw-pubsub" // and a message
	FIFO       = "fifo"       // no command: a queue inside one process
)

// All lists the peers on Redis in the order of the report.
var All = []*Peer{
	raw,
	rawWide,
	rawAuto,
	rawRueidis,
	rawPubSub,
	fifo,
	redsyncPeer(0),
	redsyncPeer(fastRetry),
	redislockPeer(0),
	redislockPeer(fastRetry),
	rueidislockPeer,
	redissonKinds,
	lockgenPeer,
}

// fastRetry is the interval of the second configuration of the peers that poll.
// Their default intervals favour throughput and starve waiters; a short one wakes
// waiters sooner and costs commands. Ours is compared with the better of the two.
const fastRetry = 5 * time.Millisecond

// Choose returns the peers on Redis with these names, separated by commas, or all if names
// is empty.
func Choose(names string) ([]*Peer, error) { return Redis.Choose(names) }

// Choose returns the peers with these names, separated by commas, or all if names is empty.
func (e *Engine) Choose(names string) ([]*Peer, error) {
	if names == "" {
		return e.Peers, nil
	}
	var chosen []*Peer
	for name := range strings.SplitSeq(names, ",") {
		p := e.Find(name)
		if p == nil || p == Redisson {
			return nil, fmt.Errorf("no peer %q; there is %s", name, strings.Join(e.Names(), ", "))
		}
		chosen = append(chosen, p)
	}
	return chosen, nil
}

// Names returns the names of all peers on Redis.
func Names() []string { return Redis.Names() }

// Names returns the names of all peers.
func (e *Engine) Names() []string {
	var names []string
	for _, p := range e.Peers {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the peer with this name, which may be Redisson, or nil if there is none.
func (e *Engine) Find(name string) *Peer {
	if name == Redisson.Name {
		return Redisson
	}
	for _, p := range e.Peers {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Key returns the name of the Redis key that holds the lock on key.
func (p *Peer) Key(key string) string {
	if p.ServerKey == nil {
		return key
	}
	return p.ServerKey(key)
}

// dial returns a client with go-redis's defaults, the same for every peer that uses go-redis.
func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}

// around varies a retry interval at random, so that pollers do not run in step.
func around(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
