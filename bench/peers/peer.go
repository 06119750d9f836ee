// Package peers puts the lock libraries that are compared behind one interface.
// Each file is one of them, with the reason for its configuration.
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
	// Program is the benchmark built with another version of the peer; empty for
	// the one that runs.
	Program string

	// Rival says that it is a library that ours is measured against: not the
	// raw floor, and not ours.
	Rival bool
	// InProcess says that it locks between the goroutines of one process alone.
	InProcess bool
	// Direct are the data commands that it sends by themselves. All others of
	// its data commands are called by scripts and are no commands on the wire.
	Direct []string
	// RenewEvery is when it renews a lease of ttl by itself; nil if it does not.
	RenewEvery func(ttl time.Duration) time.Duration
	// ServerKey is the name of the Redis key that holds the lock; nil if it is
	// the lock's own name.
	ServerKey func(key string) string

	Open func(addr string, ttl time.Duration) (Client, error)

	// Laps returns the program that does a worker's part of a workload of kinds by itself;
	// nil for what is locked by Open's Client. A peer that has it takes part in these alone.
	Laps func(l Laps) *exec.Cmd
	// Missing says what it lacks to take part; nil for what every machine has.
	Missing func() error
}

// Kind is what a workload of kinds locks.
type Kind string

// The kinds.
const (
	Readers Kind = "readers" // a read-write lock that nobody writes under
	Reads   Kind = "reads"   // a read-write lock: one section in twenty writes
	Permits Kind = "permits" // a semaphore of PermitsOf
	Fair    Kind = "fair"    // a fair lock
)

// PermitsOf is how many may hold the semaphore of a workload of kinds.
const PermitsOf = 8

// Writes says whether section n of a read-write lock is one that writes.
func Writes(n uint64) bool { return n%20 == 0 }

// Laps is one process of a workload of kinds.
type Laps struct {
	Kind       Kind
	Addr, Key  string
	TTL        time.Duration
	Goroutines int
	Section    time.Duration // in whole milliseconds
}

// KindClient is a Client that has other locks than mutexes.
type KindClient interface {
	Client
	// LockKind is Lock of another kind. n counts the sections of a goroutine. alone says that
	// nobody else is inside.
	LockKind(ctx context.Context, kind Kind, key string, n uint64) (l Lease, alone bool, err error)
}

// Client is what one process has: its connections and its local state.
type Client interface {
	// Lock waits for the lock on key until ctx ends, which has a deadline.
	Lock(ctx context.Context, key string) (Lease, error)
	Close() error
}

// Keeper is implemented by a Client whose process can keep locks that it does not use.
type Keeper interface {
	// Keep has it keep each for d, from the next call of Lock on.
	Keep(d time.Duration)
}

// Lease is one hold.
type Lease interface {
	// Unlock returns an error also if the lock was no longer held.
	Unlock(ctx context.Context) error
	// Token is the fencing token, 0 if the library has none.
	Token() uint64
}

// Ours is the name of the library of this project.
const Ours = "lockgen"

// Ours says that the peer is this project's, of this build or of an earlier one.
func (p *Peer) Ours() bool { return p.Name == Ours || p.Program != "" }

// Names of floors: what a lock needs at least, which is two commands.
const (
	Raw        = "raw"
	RawWide    = "raw-64"
	RawRueidis = "raw-rueidis"
	RawPubSub  = "raw-pubsub" // and a message
	FIFO       = "fifo"       // none of the two: a queue inside one process
)

// All are the peers in the order of the report.
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
// Their own intervals serve throughput and starve waiters; a short one wakes
// them sooner and costs commands. Ours is held against the better of the two.
const fastRetry = 5 * time.Millisecond

// Choose returns the peers on Redis named, separated by commas, or all if names
// is empty.
func Choose(names string) ([]*Peer, error) { return Redis.Choose(names) }

// Choose returns the peers named, separated by commas, or all if names is empty.
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

// Names lists all peers on Redis.
func Names() []string { return Redis.Names() }

// Names lists all peers.
func (e *Engine) Names() []string {
	var names []string
	for _, p := range e.Peers {
		names = append(names, p.Name)
	}
	return names
}

// Find returns the peer of that name, which may be Redisson; nil if there is none.
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

// dial returns a client as go-redis comes, the same for every peer on it.
func dial(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr})
}

// around spreads a retry interval, so that pollers do not march in step.
func around(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
