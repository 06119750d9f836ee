package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Options of a [Backend]. The zero value is the default.
type Options struct {
	// AttemptTimeout is how long one request may go without an answer before it
	// is sent again, to another member where there are several: 1s unless set.
	AttemptTimeout time.Duration
}

// Backend keeps locks in etcd. Make it with [New] or [Open]; its methods may be called
// from any number of goroutines.
type Backend struct {
	client  *clientv3.Client
	owned   io.Closer // client, if Open has made it, or nil
	invalid error     // why nothing can be done with what New was given, or nil
	conn    *grpc.ClientConn
	kv      pb.KVClient
	leases  pb.LeaseClient
	watcher clientv3.Watcher
	options Options

	life     *engine.Life
	sessions *engine.Sessions[class, *session]
	hub      engine.Hub[engine.Place]
	turns    engine.KeyedMutex[engine.Place]
	kinds    *record.Locks
	methods

	mu      sync.Mutex // guards the rest, and the watches of entries
	entries map[engine.Place]*entry
	held    map[engine.Place]*lease // those that have not been released yet
}

// New returns a Backend on the servers of client, with the last of options. It does
// no I/O, and never closes client. client must stay open until the last Locker on the
// Backend is closed. A client that is nil, or was not made by [clientv3.New], is an
// error of every acquire.
func New(client *clientv3.Client, options ...Options) *Backend {
	b := &Backend{
		client:  client,
		life:    engine.NewLife(),
		turns:   engine.KeyedMutex[engine.Place]{OnWait: leaveBatch}, // the batch does not wait for a turn
		entries: map[engine.Place]*entry{},
		held:    map[engine.Place]*lease{},
	}
	b.sessions = engine.NewSessions(b.life, b.newSession, b.undo)
	b.kinds = record.NewClockless(store{b}, b.life, b.watchRecord)
	b.methods = b.kinds.Register()
	for _, o := range options {
		b.options = o
	}
	if b.options.AttemptTimeout <= 0 {
		b.options.AttemptTimeout = time.Second
	}
	if client == nil || client.ActiveConnection() == nil {
		b.invalid = fmt.Errorf("%w: etcdlock.New needs a client that clientv3.New returned without an error, not nil", driver.ErrInvalid)
		return b
	}
	// The client's own KV and Lease wait for an absent server until the context ends, resend
	// some requests without saying so, and may be those of a namespace.
	b.conn = client.ActiveConnection()
	b.kv, b.leases, b.watcher = pb.NewKVClient(b.conn), pb.NewLeaseClient(b.conn), clientv3.NewWatcher(client)
	return b
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: the last Locker to close gives the sessions
// back to the server. That takes half a second at most, or a whole one if a session was
// being given back already. A session that the server has not taken by then ends by itself.
func (b *Backend) Close() error {
	last := b.life.Close(b.sessions.Close)
	if last && b.watcher != nil {
		_ = b.watcher.Close()
	}
	if last && b.owned != nil {
		return b.owned.Close()
	}
	return nil
}

// Ping implements [driver.Pinger]: it reads a key, which shows that the cluster has a
// leader and knows the client's user, and grants an etcd lease of a second, which shows that
// it takes writes. It does not check rights to the keys of locks, which it can't know.
func (b *Backend) Ping(ctx context.Context) error {
	if b.invalid != nil {
		return b.invalid
	}
	if _, _, err := b.find(ctx, one("lockgen")); err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		return err
	}
	_, err := b.grant(ctx, newLeaseID(), time.Second)
	return err
}

var (
	errClientClosed = errors.New("etcdlock: the client was closed; it must stay open until the last Locker on it is closed")
	errUndone       = errors.New("the acquisition was undone already")
)

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.check(a.Key); err != nil {
		return nil, err
	}
	ttl, err := sessionTTL(a)
	if err != nil {
		return nil, err
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Acquire(ctx, a)
	}
	e, err := b.enter(ctx, a)
	if err != nil {
		return nil, err
	}
	defer e.leave()
	return e.acquire(ctx, class{e.place.Process, ttl}, a)
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if b.check(a.Key) != nil {
		return nil // an invalid key was never sent
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	return b.sessions.Undo(ctx, a)
}

// undo is Undo of a mutex.
func (b *Backend) undo(ctx context.Context, a *driver.Acquisition) error {
	e, err := b.enter(ctx, a)
	if err != nil {
		return err
	}
	defer e.leave()
	known := true
	if l := e.holder(); l != nil && l.Acquisition.ID == a.ID {
		err = l.Release(ctx, 0)
	} else if e.undoneBy(a) {
		err = e.giveUp(ctx)
	} else {
		known = false
	}
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	if known && !a.MayHaveRun {
		return nil
	}
	for _, s := range b.sessions.All() {
		if s.class.process != e.place.Process || !s.Alive() { // etcd deletes the keys of one that has ended
			continue
		}
		mine := e.keyIn(s)
		if _, _, err := b.free(ctx, a, ifValue(mine, a.ID), del(mine)); err != nil {
			return err
		}
	}
	return nil
}

// free sends a transaction that frees the lock of a. If an attempt of a may still arrive, it leaves
// a tombstone, which makes that attempt fail. A nil a has no attempts.
func (b *Backend) free(ctx context.Context, a *driver.Acquisition, is *pb.Compare, frees *pb.RequestOp) (*pb.TxnResponse, request, error) {
	t := &pb.TxnRequest{Compare: []*pb.Compare{is}, Success: []*pb.RequestOp{frees}}
	if a != nil && a.MayHaveRun {
		id := newLeaseID()
		if _, err := b.grant(ctx, id, tombstoneTTL); err != nil {
			return nil, request{}, err
		}
		tombstone := put(tombstoneOf(a), "", id)
		t.Success, t.Failure = append(t.Success, tombstone), []*pb.RequestOp{tombstone}
	}
	return b.txn(ctx, t)
}

// tombstoneOf returns the key that exists if a was undone while an attempt of it might still
// arrive. It has more than one slash, so that it is a contender of no other lock.
func tombstoneOf(a *driver.Acquisition) string { return a.Key + ".lockgen/undone/" + a.ID + "/" }

// maxKey is the longest key taken, in bytes: as long as a name that a person
// can still read, and a small part of what a request carries.
const maxKey = 1024

// check returns why nothing can be done with key.
func (b *Backend) check(key string) error {
	if n := len(key); b.invalid == nil && (n == 0 || n > maxKey) {
		return fmt.Errorf("%w: the key has %d bytes; etcdlock takes 1 to %d (hash what is longer)", driver.ErrInvalid, n, maxKey)
	}
	return b.invalid
}

const (
	// maxTTL is the longest lease: etcd's own limit, less the second that is added.
	maxTTL = (clientv3.MaxLeaseTTL - 1) * time.Second
	// renewalMargin is how much longer than a lease without renewal its session is. Such a lease
	// needs its whole length ahead when it is taken, and a keep-alive takes a while.
	renewalMargin = 500 * time.Millisecond
)

// sessionTTL returns the ttl of the session for the lease of a: the next whole second above,
// even if the ttl has no fraction. A lease that is handed on inside a process must begin each
// hold with a whole ttl ahead, and a hand-off asks for no keep-alive.
func sessionTTL(a *driver.Acquisition) (time.Duration, error) {
	ttl := a.TTL
	if ttl <= 0 || ttl > maxTTL {
		return 0, fmt.Errorf("%w: a lease of %v; etcdlock takes from above 0 s to %v (%d s)", driver.ErrInvalid, ttl, maxTTL, int64(maxTTL/time.Second))
	}
	if a.NoRenewal {
		ttl += renewalMargin
	}
	return ttl.Truncate(time.Second) + time.Second, nil
}
