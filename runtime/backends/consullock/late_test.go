package consullock

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// heldBack holds back the last of n transactions. Its sender gets no answer.
type heldBack struct {
	http.RoundTripper
	n       atomic.Int64
	deliver func() error
}

func (s *heldBack) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/v1/txn" || s.n.Add(-1) != 0 {
		return s.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	late := r.Clone(context.Background())
	late.Body = io.NopCloser(bytes.NewReader(body))
	s.deliver = func() error {
		answer, err := s.RoundTripper.RoundTrip(late)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	return nil, io.ErrUnexpectedEOF
}

// G1, S15: an acquire gives a lock back, because it is another process's turn, and that request
// arrives late. It does not free a lock that is held.
func TestLockIsGivenBackLate(t *testing.T) {
	addr, a := testserver.Consul(t), attempt(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	waits(t, newBackend(t, addr), queuing(a.Key))
	release(t, held)
	late := &heldBack{}
	late.n.Store(2) // the first transaction takes the lock
	b := newBackend(t, addr, func(config *api.Config) {
		late.RoundTripper = config.Transport
		config.HttpClient = &http.Client{Transport: late}
	})
	l, err := b.Acquire(t.Context(), a)
	require.NoError(t, late.deliver())
	if err == nil {
		require.NoError(t, l.Renew(t.Context(), a.TTL), "the lock must be held")
		return
	}
	var other *driver.HeldError
	require.ErrorAs(t, err, &other)
	require.True(t, a.MayHaveRun)
	require.NoError(t, b.Undo(t.Context(), a))
	require.Nil(t, pair(t, addr, a.Key))
}

// G10, S15: a late undo does not delete the place that a later acquisition has taken since.
func TestLateUndoLeavesTheNextPlace(t *testing.T) {
	addr, late := testserver.Consul(t), &heldBack{}
	b := newBackend(t, addr, func(config *api.Config) {
		late.RoundTripper = config.Transport
		config.HttpClient = &http.Client{Transport: late}
	})
	a := queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	mustHeld(t, b, a)
	late.n.Store(2) // the first transaction reads
	require.ErrorIs(t, b.Undo(t.Context(), a), errNoAnswer)
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
	later := next(a)
	mustHeld(t, b, later)
	require.NoError(t, late.deliver())
	queued(t, addr, a.Key, 1)
	require.NoError(t, b.Undo(t.Context(), later))
	release(t, held)
}

// The first try of an undo forgets the waiter even if it fails, because nobody may try again once the session has ended.
func TestUndoThatFailedForgetsTheWaiter(t *testing.T) {
	addr, n := testserver.Consul(t), backendtest.NewNetwork(t)
	b, a := newBackend(t, n.Addr(addr)), queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	mustHeld(t, b, a)
	a.MayHaveRun = true
	n.Refuse()
	require.Error(t, b.Undo(within(t, soon), a))
	b.mu.Lock()
	require.Empty(t, b.waiters)
	b.mu.Unlock()
	n.Heal()
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
	release(t, held)
}

// An attempt that fails before it waits is never undone, so it must leave nothing in the Backend.
func TestFailureBeforeTheWait(t *testing.T) {
	addr, n, between := testserver.Consul(t), backendtest.NewNetwork(t), &interceptor{}
	b := newBackend(t, n.Addr(addr), func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	a := queuing(newKey(t))
	held := take(t, newBackend(t, addr), attempt(a.Key))
	between.do = func() {
		release(t, held) // so that the request for a place is refused
		between.do = n.Refuse
		between.n.Store(1)
	}
	between.n.Store(3) // the first tries to take the key, the second reads, the third requests a place
	_, err := b.Acquire(t.Context(), a)
	require.Error(t, err)
	require.False(t, a.MayHaveRun || a.MayBeGranted)
	b.mu.Lock()
	require.Empty(t, b.waiters)
	b.mu.Unlock()
	n.Heal()
}

// G10: an undo does not delete a place with which a later acquisition of the process has continued
// meanwhile.
func TestUndoBesideOneThatComes(t *testing.T) {
	addr, between := testserver.Consul(t), &interceptor{}
	b := newBackend(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	old := queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(old.Key))
	mustHeld(t, b, old)
	later, came := next(old), make(chan struct{})
	between.do = func() {
		go func() {
			defer close(came)
			mustHeld(t, b, later)
		}()
		select {
		case <-came:
		case <-time.After(100 * time.Millisecond): // the later acquisition waits for the undo
		}
	}
	between.n.Store(2) // the first transaction reads
	require.NoError(t, b.Undo(t.Context(), old))
	receive(t, came)
	queued(t, addr, old.Key, 1)
	require.NoError(t, b.Undo(t.Context(), later))
	release(t, held)
}
