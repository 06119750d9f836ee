package consullock

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// counted counts the requests of a client, by method and path without names.
type counted struct {
	http.RoundTripper
	mu     sync.Mutex
	counts map[string]int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(r.URL.Path, "/") // "", v1, session, renew, id
	name := r.Method + " " + strings.Join(parts[2:min(len(parts), 4)], "/")
	if parts[2] == "kv" {
		name = r.Method + " kv"
	}
	c.mu.Lock()
	c.counts[name]++
	c.mu.Unlock()
	return c.RoundTripper.RoundTrip(r)
}

func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = map[string]int{}
	return counts
}

func counting() (*counted, func(*api.Config)) {
	c := &counted{counts: map[string]int{}}
	return c, func(config *api.Config) {
		c.RoundTripper = config.Transport
		config.HttpClient = &http.Client{Transport: c}
	}
}

// withoutNotes is a Backend that does not implement driver.Noter, so that its Lockers write no note
// of who they are: such a note has a session of its own.
type withoutNotes struct {
	*Backend
	PutNote struct{}
}

// Once the session exists, an uncontended lock takes two requests and nothing else. Many holds
// need one session, one renewal of it in each third of the ttl, and one request to check
// each 64 holds.
func TestManyHoldsOneSession(t *testing.T) {
	const holds = 200
	c, config := counting()
	l := lockerOn(t, withoutNotes{Backend: New(newClient(t, testserver.Consul(t), config), noDelay())})
	p := ttl(3 * time.Second)
	_, held := acquire(t, l, p, newKey(t))
	mustRelease(t, held)
	require.Equal(t, 2, c.take()["PUT session/create"], "one session finds the range of ttls")
	var all []*lock.Hold
	for range holds {
		_, held := acquire(t, l, p, newKey(t))
		all = append(all, held)
	}
	require.Less(t, c.take()["PUT txn"], holds+holds/4, "one for each hold, and a few that check the holds")
	time.Sleep(3 * time.Second)
	idle := c.take()
	require.LessOrEqual(t, idle["PUT session/renew"], 6)
	require.Positive(t, idle["PUT session/renew"])
	require.LessOrEqual(t, idle["PUT txn"], 4*(holds/64+4))
	require.Zero(t, idle["PUT session/create"])
	for _, held := range all {
		mustRelease(t, held)
	}
}

// S75: while renewals fail and the blocking query hangs, the deadline ends the hold. It does
// so before the session ends.
func TestSilentServerEndsTheHoldInTime(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	l := newLocker(t, n.Addr(addr))
	key := newKey(t)
	ctx, held := acquire(t, l, ttl(short), key)
	begin := time.Now()
	n.Silence()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	require.Less(t, time.Since(begin), 2*short+meter.Since(begin))
	if p := pair(t, addr, key); time.Since(begin) < 2*short { // Consul ends a session after twice its length
		require.NotNil(t, p, "nobody else can take the key yet")
	}
	n.Heal()
	wantIs(t, finish(held), lock.ErrLost)
}

// S76: when a session is destroyed, its keys are blocked for the lock-delay. The error of a try
// names the lock-delay, and a call that waits gets the lock after it.
func TestLockDelay(t *testing.T) {
	addr := testserver.Consul(t)
	const delay = 2 * time.Second
	delayed := New(newClient(t, addr), Options{LockDelay: delay})
	defer delayed.Close()
	key := newKey(t)
	take(t, delayed, attempt(key))
	begin := time.Now()
	endSession(t, addr, pair(t, addr, key).Session)

	l := newLocker(t, addr)
	_, _, err := l.Acquire(t.Context(), &lock.Policy{TTL: short, Try: true}, key)
	wantIs(t, err, lock.ErrNotAcquired)
	require.ErrorContains(t, err, "lock-delay")
	_, held := acquire(t, l, ttl(long), key)
	require.GreaterOrEqual(t, time.Since(begin), delay-100*time.Millisecond)
	require.Less(t, time.Since(begin), delay+2*time.Second+meter.Since(begin))
	mustRelease(t, held)
}

func TestNoLockDelay(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	take(t, newBackend(t, addr), attempt(key))
	endSession(t, addr, pair(t, addr, key).Session)
	release(t, take(t, b, attempt(key)))
}

// S55: when an operator destroys a session, its holder learns this at once, not at
// the next renewal. The next acquire uses another session.
func TestDestroyedSessionIsHeardOfAtOnce(t *testing.T) {
	addr := testserver.Consul(t)
	l, key := newLocker(t, addr), newKey(t)
	ctx, held := acquire(t, l, ttl(long), key) // its first renewal is after 20 s
	session := pair(t, addr, key).Session
	begin := time.Now()
	endSession(t, addr, session)
	select {
	case <-ctx.Done():
	case <-time.After(soon):
		t.Fatal("the holder's context has not ended")
	}
	t.Logf("the holder's context ended after %v", time.Since(begin))
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	_, held = acquire(t, l, ttl(20*time.Second), key)
	require.NotEqual(t, session, pair(t, addr, key).Session)
	mustRelease(t, held)
}

// deadlines records the requests whose context has no deadline.
type deadlines struct {
	http.RoundTripper
	mu        sync.Mutex
	unlimited []string     // requests without a deadline
	asked     atomic.Int64 // blocking queries
}

func (h *deadlines) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, limited := r.Context().Deadline(); !limited {
		h.mu.Lock()
		h.unlimited = append(h.unlimited, r.Method+" "+r.URL.Path)
		h.mu.Unlock()
	}
	if r.URL.Query().Get("wait") != "" {
		h.asked.Add(1)
	}
	return h.RoundTripper.RoundTrip(r)
}

// Each request has a deadline, so a dead connection that reports no error does not block a query forever.
func TestEveryRequestHasAnEnd(t *testing.T) {
	addr := testserver.Consul(t)
	h := &deadlines{}
	b := newBackend(t, addr, func(c *api.Config) {
		h.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: h}
	})
	a := queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	waits(t, b, a)
	eventually(t, soon, "the key and the session are watched", func() bool { return h.asked.Load() >= 2 })
	release(t, held)
	l := take(t, b, a)
	require.NoError(t, l.Renew(t.Context(), long))
	release(t, l)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Empty(t, h.unlimited)
}

// S64: the session of a waiting process ends. That grants no lock, and the process does not wait
// forever.
func TestSessionEndsWhileWaiting(t *testing.T) {
	addr := testserver.Consul(t)
	b, l, key := newBackend(t, addr), newLocker(t, addr), newKey(t)
	_, own := acquire(t, l, ttl(long), newKey(t))
	mustRelease(t, own)
	_, other := acquire(t, l, ttl(long), newKey(t)) // keeps the session open
	lease := take(t, b, attempt(key))
	waiter := start(l, ttl(long), key)
	queued(t, addr, key, 1)
	sessions, _, err := newClient(t, addr).Session().List(nil)
	require.NoError(t, err)
	entries, _, err := newClient(t, addr).KV().List(queuePrefix(key), nil)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	mine := entries[0]
	for _, s := range sessions {
		if s.ID == mine.Session {
			endSession(t, addr, s.ID)
		}
	}
	release(t, lease)
	o := receive(t, waiter)
	require.NoError(t, o.err)
	require.NoError(t, lock.Check(o.ctx))
	mustRelease(t, o.held)
	wantIs(t, finish(other), lock.ErrLost)
}

// A lease that nobody renews ends, although its session continues for other leases.
func TestLeaseEndsOnALivingSession(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	a := attempt(key)
	a.TTL = 2 * short
	fixed := take(t, b, a)
	s := fixed.(*lease).session
	s.Use()
	defer s.Drop()
	eventually(t, soon, "the lease has ended", func() bool { return pair(t, addr, key) == nil })
	require.LessOrEqual(t, fixed.Deadline().Left(), time.Duration(0))
	wantIs(t, fixed.Renew(t.Context(), a.TTL), lock.ErrLost)
	require.NoError(t, s.Context().Err())
}

// The last of the Lockers that share a Backend closes it, and then no session is left.
func TestCloseEndsTheSessions(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := New(newClient(t, addr), noDelay()), newKey(t)
	first, second := lock.New(b, nil), lock.New(b, nil)
	_, held := acquire(t, first, ttl(long), newKey(t))
	mustRelease(t, held)
	require.NoError(t, first.Close(t.Context()))
	_, held = acquire(t, second, ttl(long), key)
	session := pair(t, addr, key).Session
	mustRelease(t, held)
	require.NoError(t, second.Close(t.Context()))
	s, _, err := newClient(t, addr).Session().Info(session, nil)
	require.NoError(t, err)
	require.Nil(t, s)
}

// refusing, while it is on, answers requests for a path as a cluster without a leader does.
type refusing struct {
	http.RoundTripper
	path    string
	on      atomic.Bool
	refused chan struct{} // has a value after a refusal
}

func refusingAt(path string) *refusing { return &refusing{path: path, refused: make(chan struct{}, 1)} }

// twice has r refuse requests from now on. It returns a context that ends when r has refused a
// second request, because the client has received the answer to the first one by then.
func (r *refusing) twice(t testing.TB) context.Context {
	for len(r.refused) > 0 {
		<-r.refused
	}
	r.on.Store(true)
	second := make(chan struct{})
	ctx := until(t, second)
	go func() {
		defer close(second)
		for range 2 {
			select {
			case <-r.refused:
			case <-ctx.Done():
			}
		}
	}()
	return ctx
}

func (r *refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.on.Load() && strings.Contains(request.URL.Path, r.path) {
		select {
		case r.refused <- struct{}{}:
		default:
		}
		return broken{http.StatusInternalServerError, "No cluster leader"}.RoundTrip(request)
	}
	return r.RoundTripper.RoundTrip(request)
}

// No lease lasts longer than its session is sure to last: a session that has aged is renewed first.
func TestLeaseWithinItsSession(t *testing.T) {
	addr := testserver.Consul(t)
	const d = maxTTL
	renewals := refusingAt("/session/renew/")
	b := newBackend(t, addr, func(c *api.Config) {
		renewals.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: renewals}
	})
	s, err := b.sessions.Get(t.Context(), classOf(d))
	require.NoError(t, err)
	s.Drop()
	covered := func(l driver.Lease) {
		t.Helper()
		left := s.Left()
		require.LessOrEqual(t, l.Deadline().Left(), left)
		require.Greater(t, l.Deadline().Left(), d-time.Minute)
	}
	s.Shorten(driver.Now().Add(10 * time.Hour)) // as if the session had aged
	a := attempt(newKey(t))
	a.TTL = d
	_, err = b.Acquire(renewals.twice(t), a)
	require.ErrorContains(t, err, "renew the session")
	require.Nil(t, pair(t, addr, a.Key))
	renewals.on.Store(false)
	l := take(t, b, a)
	covered(l)
	s.Shorten(driver.Now().Add(10 * time.Hour))
	require.ErrorContains(t, l.Renew(renewals.twice(t), d), "renew the session")
	renewals.on.Store(false)
	require.NoError(t, l.Renew(within(t, soon), d))
	covered(l)
	release(t, l)
}

func TestClasses(t *testing.T) {
	for d := 500 * time.Millisecond; d < maxTTL; d += d/7 + 1 {
		c := classOf(d)
		require.GreaterOrEqual(t, c.sessionTTL(), time.Duration(c)+time.Duration(c)/4)
	}
	require.LessOrEqual(t, classOf(maxTTL).sessionTTL(), maxSession)
}

// A lease that is lost does not keep its session open, because nobody releases the lease.
func TestLostLeaseLeavesItsSession(t *testing.T) {
	addr := testserver.Consul(t)
	b := newBackend(t, addr)
	l := take(t, b, brief(newKey(t))).(*lease)
	_, err := newClient(t, addr).KV().Delete(l.Acquisition.Key, nil)
	require.NoError(t, err)
	require.ErrorIs(t, l.Renew(t.Context(), short), lock.ErrLost)
	receive(t, l.session.Context().Done()) // the session ends after its idle time
	require.NotErrorIs(t, context.Cause(l.session.Context()), lock.ErrLost)
}

// The same if the lease has ended in the client before the renewal. The lock at the server is deleted too.
func TestLateRenewalLeavesTheSession(t *testing.T) {
	addr := testserver.Consul(t)
	b := newBackend(t, addr)
	l := take(t, b, attempt(newKey(t))).(*lease)
	l.End()
	require.ErrorIs(t, l.Renew(t.Context(), short), lock.ErrLost)
	eventually(t, soon, "the lease is undone", func() bool { return pair(t, addr, l.Acquisition.Key) == nil })
	require.True(t, l.Closed())
	require.NoError(t, l.session.Context().Err())
}
