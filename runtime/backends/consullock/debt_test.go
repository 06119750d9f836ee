package consullock

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// orphan has an attempt on s take a lock, and the answer lost.
func orphan(t *testing.T, b *Backend, s *session) *driver.Acquisition {
	t.Helper()
	a := attempt(newKey(t))
	_, err := b.write(t.Context(), ops{
		kv(api.KVLock, api.KVTxnOp{Key: a.Key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}),
	})
	require.NoError(t, err)
	b.unanswered(a, s)
	return a
}

// renewed has s renewed though it lasts.
func renewed(t *testing.T, s *session) {
	t.Helper()
	require.NoError(t, s.reach(t.Context(), driver.Now().Add(s.ttl-50*time.Millisecond)))
}

// G6: an undo that failed, and that nobody tries again, is tried after the next renewal
// of the session, which other holds keep: whichever of its requests it was.
func TestUndoThatFailed(t *testing.T) {
	addr := testserver.Consul(t)
	for request := range 3 {
		between := &intruder{}
		b := newBackend(t, addr, func(c *api.Config) {
			between.RoundTripper = c.Transport
			c.HttpClient = &http.Client{Transport: between}
		})
		held := take(t, b, attempt(newKey(t))).(*lease)
		b.noLookout(held)
		s := held.session
		a := orphan(t, b, s)
		ctx, cancel := context.WithCancel(t.Context())
		between.do = cancel
		between.n.Store(int64(request + 1))
		require.ErrorIs(t, b.Undo(ctx, a), context.Canceled)
		require.True(t, sight(t, b, a.Key).heldBy(a.ID))
		renewed(t, s)
		eventually(t, soon, "it is undone", func() bool { return pair(t, addr, a.Key) == nil })
		require.NoError(t, held.Renew(t.Context(), short))
		release(t, held)
		eventually(t, soon, "nothing is owed", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.debts) == 0 && !b.paying
		})
	}
}

// The same where a Locker closes while the answers are lost, and another has holds on
// the Backend that they share.
func TestCloseWhileAnswersAreLost(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b := New(newClient(t, n.Addr(addr)), noDelay())
	one, two, key := lock.New(b, nil), lockerOn(t, b), newKey(t)
	p := ttl(5 * short)
	ctx, held := acquire(t, two, p, newKey(t))
	n.LoseReplies()
	brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := one.Acquire(brief, p, key)
	wantIs(t, err, lock.ErrIndeterminate)
	require.NoError(t, one.Close(brief))
	n.Heal()
	require.NotNil(t, pair(t, addr, key))
	eventually(t, soon, "it is undone", func() bool { return pair(t, addr, key) == nil })
	require.NoError(t, lock.Check(ctx))
	mustRelease(t, held)
}

// Nothing is owed any more of what has gone with its session.
func TestDebtGoesWithItsSession(t *testing.T) {
	b := newBackend(t, testserver.Consul(t))
	held := take(t, b, attempt(newKey(t))).(*lease)
	a := orphan(t, b, held.session)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.Undo(gone, a))
	require.Len(t, b.debts, 1)
	held.session.end()
	eventually(t, soon, "nothing is owed", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.debts) == 0
	})
	require.Error(t, b.Undo(gone, a))
	require.Empty(t, b.debts)
	require.NoError(t, b.Undo(t.Context(), a))
}

// Paid late, an undo leaves the place to those of its process that wait by then.
func TestDebtBesideALaterOne(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	mustHeld(t, b, a)
	b.mu.Lock()
	s := b.offers[a.ID].session
	b.mu.Unlock()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.Undo(gone, a))
	later := next(a)
	later.NoRenewal = true // its line does not tell whose it is
	sub, err := b.Subscribe(t.Context(), later)
	require.NoError(t, err)
	mustHeld(t, b, later)
	require.Equal(t, line{name: process(a.ID)}, sight(t, b, a.Key).queue.head())
	b.payAll(t.Context(), s)
	require.Empty(t, b.debts)
	queued(t, addr, a.Key, 1)
	sub.Close()
	require.NoError(t, b.Undo(t.Context(), later))
	queued(t, addr, a.Key, 0)
	release(t, held)
}

// Close does not wait for a server that is asked in vain.
func TestCloseWhileADebtIsPaid(t *testing.T) {
	n, asked := backendtest.NewNetwork(t), make(chan struct{})
	between := &intruder{do: func() { close(asked) }}
	b := New(newClient(t, n.Addr(testserver.Consul(t)), func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	}), noDelay())
	held := take(t, b, attempt(newKey(t))).(*lease)
	a := orphan(t, b, held.session)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.Undo(gone, a))
	n.Silence()
	between.n.Store(1)
	b.pay(held.session)
	receive(t, asked)
	b.mu.Lock()
	require.True(t, b.paying)
	b.mu.Unlock()
	begin := time.Now()
	require.NoError(t, b.Close())
	require.Less(t, time.Since(begin), closeWithin+300*time.Millisecond)
}
