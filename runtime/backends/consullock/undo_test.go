package consullock

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// queuing returns an acquisition that takes a place in the queue if the key is held.
func queuing(key string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1, Queue: true}
}

// next returns a later acquisition of a's process.
func next(a *driver.Acquisition) *driver.Acquisition {
	return &driver.Acquisition{Key: a.Key, ID: a.ID + "1", TTL: long, Tokens: 1, Queue: true}
}

// waits has b queue a, whose key is held, and subscribe, as a Locker does.
func waits(t *testing.T, b *Backend, a *driver.Acquisition) driver.Subscription {
	t.Helper()
	mustHeld(t, b, a)
	s, err := b.Subscribe(t.Context(), a)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	mustHeld(t, b, a)
	return s
}

func viewOf(t *testing.T, b *Backend, key string) *view {
	t.Helper()
	v, err := b.readLock(t.Context(), key)
	require.NoError(t, err)
	return v
}

// A Try of the same Locker, made meanwhile, does not keep the place that the waiter gives up.
func TestUndoBesideATry(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	waits(t, b, a)
	try := next(a)
	try.Queue = false
	mustHeld(t, b, try)
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
	release(t, held)
	release(t, take(t, newBackend(t, addr), attempt(a.Key)))
	queued(t, addr, a.Key, 0)
	require.Nil(t, pair(t, addr, a.Key))
}

// A place is created late, after the last acquisition of its process has given it up. The undo of
// the acquisition that had no answer deletes it. While other acquisitions of the process wait, the
// place is theirs and stays.
func TestUndoOfAPlaceThatCameLate(t *testing.T) {
	addr := testserver.Consul(t)
	for _, waiting := range []bool{false, true} {
		b, a := newBackend(t, addr), queuing(newKey(t))
		held := take(t, newBackend(t, addr), queuing(a.Key))
		op, v, w := aboutToQueue(t, b, a)
		if waiting {
			s, err := b.Subscribe(t.Context(), a)
			require.NoError(t, err)
			defer s.Close()
		} else {
			require.NoError(t, b.Undo(t.Context(), next(a)))
		}
		require.NoError(t, op.enqueue(t.Context(), v, w))
		a.MayHaveRun = true // as if it had no answer
		queued(t, addr, a.Key, 1)
		a.Queue = false
		require.NoError(t, b.Undo(t.Context(), a))
		if waiting {
			queued(t, addr, a.Key, 1)
			require.NoError(t, b.Undo(t.Context(), next(a)))
		}
		queued(t, addr, a.Key, 0)
		release(t, held)
	}
}

// aboutToQueue returns an attempt of a that has read the key and is about to take its place in
// the queue.
func aboutToQueue(t *testing.T, b *Backend, a *driver.Acquisition) (*acquireOp, *view, *waiter) {
	t.Helper()
	release(t, take(t, b, queuing(newKey(t)))) // creates a session
	return &acquireOp{backend: b, acquisition: a, place: engine.PlaceOf(a)}, viewOf(t, b, a.Key), b.waiterOf(a)
}

// S15: the undo overtakes the request for a place in the queue, as it overtakes an acquire.
func TestUndoOvertakesThePlace(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b, a := newBackend(t, n.Addr(addr)), queuing(newKey(t))
	holder := take(t, newBackend(t, addr), queuing(a.Key))
	op, v, w := aboutToQueue(t, b, a)
	late := n.Hold()
	require.Error(t, op.enqueue(until(t, late.Arrived()), v, w))
	require.True(t, a.MayHaveRun)
	late.Overtake()
	require.NoError(t, b.Undo(t.Context(), a))
	late.Deliver()
	queued(t, addr, a.Key, 0)
	release(t, holder)
	require.Empty(t, b.waiters)
}

// A place that is created after its acquisition has taken the lock would never be deleted, so the
// request for it is refused.
func TestPlaceAfterTheLockWasTaken(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	op, v, w := aboutToQueue(t, b, a)
	release(t, held)
	l := take(t, b, a)
	require.ErrorIs(t, op.enqueue(t.Context(), v, w), errChanged)
	queued(t, addr, a.Key, 0)
	release(t, l)
	require.NoError(t, b.Undo(t.Context(), a))
}

// A late undo does not delete the place of a later acquisition.
func TestUndoBesideALaterOne(t *testing.T) {
	addr := testserver.Consul(t)
	b, old := newBackend(t, addr), queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(old.Key))
	waits(t, b, old)
	later := next(old)
	mustHeld(t, b, later)
	require.NoError(t, b.Undo(t.Context(), old))
	queued(t, addr, old.Key, 1)
	require.NoError(t, b.Undo(t.Context(), later))
	queued(t, addr, old.Key, 0)
	release(t, held)
}

// unanswered takes a lock on s, as an attempt whose answer was lost.
func unanswered(t *testing.T, b *Backend, s *session) *driver.Acquisition {
	t.Helper()
	a := attempt(newKey(t))
	_, err := b.write(t.Context(), ops{
		kv(api.KVLock, api.KVTxnOp{Key: a.Key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}),
	})
	require.NoError(t, err)
	a.MayHaveRun = true
	return a
}

// interceptor calls do before the last of n transactions.
type interceptor struct {
	http.RoundTripper
	n  atomic.Int64
	do func()
}

func (i *interceptor) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/txn") && i.n.Add(-1) == 0 {
		i.do()
	}
	return i.RoundTripper.RoundTrip(r)
}

// G6: an undo fails at one of its requests, and its caller does not try again. The session, which
// other holds keep alive, repeats the undo.
func TestUndoThatFailed(t *testing.T) {
	addr := testserver.Consul(t)
	for request := range 3 {
		between := &interceptor{}
		b := newBackend(t, addr, func(c *api.Config) {
			between.RoundTripper = c.Transport
			c.HttpClient = &http.Client{Transport: between}
		})
		held := take(t, b, attempt(newKey(t))).(*lease)
		a := unanswered(t, b, held.session)
		ctx, cancel := context.WithCancel(t.Context())
		between.do = cancel
		between.n.Store(int64(request + 1))
		require.ErrorIs(t, b.Undo(ctx, a), context.Canceled)
		eventually(t, soon, "the acquisition is undone", func() bool { return pair(t, addr, a.Key) == nil })
		require.NoError(t, held.Renew(t.Context(), long))
		release(t, held)
		eventually(t, soon, "no undo is pending", func() bool { return !held.session.HasUndo() })
	}
}

// The same if a Locker closes while the answers are lost, and another Locker has holds on
// the Backend that both share.
func TestCloseWhileAnswersAreLost(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b := New(newClient(t, n.Addr(addr)), noDelay())
	one, two, key := lock.New(b, nil), lockerOn(t, b), newKey(t)
	p := ttl(long)
	ctx, held := acquire(t, two, p, newKey(t))
	n.LoseReplies()
	brief, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, 1)
	go func() {
		_, _, err := one.Acquire(brief, p, key)
		errs <- err
	}()
	eventually(t, soon, "the key is taken", func() bool { return pair(t, addr, key) != nil })
	n.Silence() // no undo reaches the server
	cancel()
	wantIs(t, <-errs, lock.ErrIndeterminate)
	wantIs(t, one.Close(brief), context.Canceled) // the undo is left to the backend
	require.NotNil(t, pair(t, addr, key))
	n.Heal()
	eventually(t, soon, "the acquisition is undone", func() bool { return pair(t, addr, key) == nil })
	require.NoError(t, lock.Check(ctx))
	mustRelease(t, held)
}

// Close does not wait for a server that does not answer an undo.
func TestCloseWhileAnUndoIsPending(t *testing.T) {
	n, asked := backendtest.NewNetwork(t), make(chan struct{})
	between := &interceptor{do: func() { close(asked) }}
	b := New(newClient(t, n.Addr(testserver.Consul(t)), func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	}), noDelay())
	held := take(t, b, attempt(newKey(t))).(*lease)
	a := unanswered(t, b, held.session)
	a.MayHaveRun = false // so that the undo reads the key first
	n.Silence()
	between.n.Store(1)
	held.session.AddUndo(a)
	receive(t, asked)
	begin := time.Now()
	require.NoError(t, b.Close())
	require.Less(t, time.Since(begin), time.Second+meter.Since(begin))
}

// endsAfter cancels a context once the server has answered a transaction that takes a lock.
type endsAfter struct {
	http.RoundTripper
	end func()
}

func (e *endsAfter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/v1/txn" {
		return e.RoundTripper.RoundTrip(r)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(sent))
	answer, err := e.RoundTripper.RoundTrip(r)
	if err != nil || !bytes.Contains(sent, []byte(`"Verb":"lock"`)) {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	e.end()
	return answer, err
}

// An acquire takes a lock although it is another process's turn, and must give it back. It does so even
// if the caller's context ends in between.
func TestWaitEndsBeforeALockIsGivenBack(t *testing.T) {
	addr, a := testserver.Consul(t), attempt(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	waits(t, newBackend(t, addr), queuing(a.Key))
	release(t, held)
	ctx, cancel := context.WithCancel(t.Context())
	e := &endsAfter{end: cancel}
	b := newBackend(t, addr, func(config *api.Config) {
		e.RoundTripper = config.Transport
		config.HttpClient = &http.Client{Transport: e}
	})
	_, err := b.Acquire(ctx, a)
	require.Error(t, err)
	require.True(t, a.MayHaveRun)
	require.NoError(t, b.Undo(t.Context(), a))
	require.Nil(t, pair(t, addr, a.Key))
}

// existingKey creates an unlocked key, as api.Lock leaves it after a release.
func existingKey(t *testing.T, addr string) (key string) {
	t.Helper()
	key = newKey(t)
	_, err := newClient(t, addr).KV().Put(&api.KVPair{Key: key, Flags: lockFlag, Value: []byte("theirs")}, nil)
	require.NoError(t, err)
	return key
}

// Acquire of a key that is held returns a HeldError even if ctx ends before the client knows who holds it.
func TestHeldThoughNobodyLooked(t *testing.T) {
	addr, a, between := testserver.Consul(t), attempt(newKey(t)), &interceptor{}
	held := take(t, newBackend(t, addr), attempt(a.Key))
	ctx, cancel := context.WithCancel(t.Context())
	between.do = cancel
	b := newBackend(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	between.n.Store(2) // the first transaction tries to take the key
	_, err := b.Acquire(ctx, a)
	var other *driver.HeldError
	require.ErrorAs(t, err, &other)
	release(t, held)
}
