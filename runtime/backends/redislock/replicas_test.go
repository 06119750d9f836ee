package redislock

import (
	"context"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The longest timeout does not overflow and become a short one when other times are added to it.
func TestLongestReplicaTimeout(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	client := clusterOf(t, redis.ClusterSlot{End: 16383, Nodes: []redis.ClusterNode{{Addr: primary.Addr()}}})
	l := lockerOn(t, New(client, Options{Replicas: 1, ReplicaTimeout: math.MaxInt64}))
	_, held := acquire(t, l, nil, "key")
	mustRelease(t, held)
}

// S30: an acquire that fewer replicas have received than Options.Replicas is undone and fails.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	const within = 300 * time.Millisecond
	b := New(newClient(t, primary.Addr()), Options{Replicas: 1, ReplicaTimeout: soon})
	l := lockerOn(t, b)
	warm(t, l)

	key := newKey(t)
	_, held := acquire(t, l, nil, key)
	if !exists(t, replica.Addr(), key) {
		t.Error("the replica has no lock")
	}
	wantIs(t, refused(t, l, try(), key), lock.ErrNotAcquired)
	mustRelease(t, held)

	// Many acquires at once share pipelines, and one WAIT.
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			key := newKey(t)
			_, held := acquire(t, l, nil, key)
			if !exists(t, replica.Addr(), key) {
				t.Error("the replica has no lock")
			}
			mustRelease(t, held)
		})
	}
	all.Wait()

	before := start(t.Context(), l, nil, key) // held while the replica is stopped, because renewals do not wait for replicas
	kept := receive(t, "a lock", before)
	if kept.err != nil {
		t.Fatal(kept.err)
	}
	b.options.ReplicaTimeout = within // from here on no replica answers
	replica.Stop()
	lost := newKey(t)
	begin := time.Now()
	err := refused(t, l, nil, lost)
	wantIs(t, err, lock.ErrUnavailable)
	wantIsNot(t, err, lock.ErrIndeterminate, lock.ErrNotAcquired)
	if err != nil && !strings.Contains(err.Error(), "0 of the 1 replicas") {
		t.Errorf("err = %v", err)
	}
	if took := time.Since(begin); took < within || took > 2*within+meter.Since(begin) {
		t.Errorf("refused after %v", took)
	}
	if exists(t, primary.Addr(), lost) {
		t.Error("the lock was not undone")
	}

	// Releases do not queue behind acquires that wait for replicas.
	for range 8 {
		all.Go(func() { wantIs(t, refused(t, l, nil, newKey(t)), lock.ErrUnavailable) })
	}
	time.Sleep(within / 4)
	begin = time.Now()
	mustRelease(t, kept.held)
	if took := time.Since(begin); took > within/2+meter.Since(begin) {
		t.Errorf("released after %v", took)
	}
	all.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	var at time.Time
	time.AfterFunc(within/2, func() { at = time.Now(); cancel() })
	_, _, err = l.Acquire(ctx, nil, newKey(t))
	wantIs(t, err, context.Canceled)
	if late := time.Since(at); late > 100*time.Millisecond+meter.Since(at) {
		t.Errorf("the call ended %v after its context", late)
	}
	replica.Cont()
	b.options.ReplicaTimeout = soon
	_, held = acquire(t, l, nil, lost)
	mustRelease(t, held)
}

// An answer of WAIT counts only on the connection that took the lock. On a new connection
// every replica has all that the connection wrote, which is nothing.
func TestReplicasAreAskedOnTheSameConnection(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	b := newTestBackend(t, primary.Addr())
	b.options = Options{Replicas: 1, ReplicaTimeout: 200 * time.Millisecond}
	replica.Stop()
	defer replica.Cont()
	key := newKey(t)
	_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1})
	if err == nil || !strings.Contains(err.Error(), "0 of the 1 replicas") {
		t.Errorf("err = %v, but the replica has nothing", err)
	}
}

// Without the option an uncontended cycle takes two commands, with it three.
func TestReplicasCostNothingUnlessAsked(t *testing.T) {
	t.Parallel()
	primary, replica := testserver.StartRedis(t), replicaOf(t)
	follow(t, replica, primary)
	for replicas, want := range []int{2, 3} {
		l := lockerOn(t, allowSlowAnswers(New(newClient(t, primary.Addr()), Options{Replicas: replicas, ReplicaTimeout: soon})))
		warm(t, l)
		before := ran(t, primary)
		const cycles = 10
		for range cycles {
			_, held := acquire(t, l, nil, newKey(t))
			mustRelease(t, held)
		}
		if got := ran(t, primary) - before; got != want*cycles {
			t.Errorf("%d commands in %d cycles with %d replicas, want %d", got, cycles, replicas, want*cycles)
		}
	}
}

// ran returns how many scripts and WAITs the server ran.
func ran(t testing.TB, server *testserver.Instance) int {
	t.Helper()
	return scriptCalls(t, server) + calls(t, server, "wait")
}

// relay forwards connections to a server. Like a name in DNS, it can be told to forward new connections
// to another server.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	target   string
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, target: target}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { r.serve(in) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); conns.Wait() })
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) to(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

func (r *relay) serve(in net.Conn) {
	defer in.Close()
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
		close(done)
	}()
	_, _ = io.Copy(out, in)
	_ = out.Close()
	<-done
}

// A demoted server that refuses many calls has few connections.
func TestDemotedServerHasFewConnections(t *testing.T) {
	t.Parallel()
	primary, replica := replicaOf(t), replicaOf(t)
	l := newLocker(t, replica.Addr())
	warm(t, l)
	follow(t, replica, primary)
	ctx, cancel := context.WithTimeout(t.Context(), 3*replaceAfter)
	defer cancel()
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_ = l.Do(ctx, try(), newKey(t), func(context.Context) error { return nil })
			}
		})
	}
	callers.Wait()
	if n := infoField(t, replica.Addr(), "clients", "connected_clients"); len(n) > 2 {
		t.Errorf("%s connections", n)
	}
	command(t, replica.Addr(), "REPLICAOF", "NO", "ONE")
	_, held := acquire(t, l, nil, newKey(t))
	mustRelease(t, held)
}
