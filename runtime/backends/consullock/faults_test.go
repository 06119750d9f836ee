package consullock

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// S15, S65: the undo overtakes the acquire. It leaves a tombstone, which makes the late
// acquire fail. Other holds of the session continue.
func TestUndoOvertakesTheAcquire(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b := New(newClient(t, n.Addr(addr)), noDelay())
	other := take(t, b, attempt(newKey(t)))
	a := attempt(newKey(t))
	late := n.Hold()
	_, err := b.Acquire(until(t, late.Arrived()), a)
	wantIs(t, err, lock.ErrIndeterminate)
	require.True(t, a.MayHaveRun)
	late.Overtake()
	require.NoError(t, b.Undo(t.Context(), a))
	require.NotEmpty(t, pair(t, addr, tombstoneOf(a.ID)).Session, "the tombstone must end by itself")
	late.Deliver()
	require.Nil(t, pair(t, addr, a.Key), "the acquire arrived after its undo and must not take the lock")

	_, err = b.Acquire(t.Context(), a)
	require.ErrorIs(t, err, errUndone)
	release(t, take(t, b, attempt(a.Key)))
	require.NoError(t, other.Renew(t.Context(), long))
	release(t, other)
	require.NoError(t, b.Close())
}

// A tombstone ends even if its process continues. Its session is not one that is renewed for a note, or for a
// tombstone of a later minute.
func TestTombstonesEnd(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), attempt(newKey(t))
	a.MayHaveRun = true // as if it had no answer
	require.NoError(t, b.Undo(t.Context(), a))
	require.NoError(t, b.PutNote(t.Context(), "process/"+a.ID, "note", minTombstoneTTL))
	session := pair(t, addr, tombstoneOf(a.ID)).Session
	require.NotEqual(t, session, pair(t, addr, noteKey("process/"+a.ID)).Session)
	used := map[time.Duration]bool{minTombstoneTTL: true}
	for at := range 60 {
		used[tombstoneTTL(time.Time{}.Add(time.Duration(at)*time.Minute))] = true
	}
	require.Len(t, used, 61)
}

// S33: while a server hangs, no call takes longer than its context, and holders stop
// in time. Afterwards all works again.
func TestHungServer(t *testing.T) {
	server := testserver.StartConsul(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(short), key)
	server.Stop()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := l.Acquire(brief, ttl(short), newKey(t))
	require.Error(t, err)
	wantIs(t, err, context.DeadlineExceeded)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	server.Cont()
	wantIs(t, finish(held), lock.ErrLost)
	_, held = acquire(t, l, ttl(long), key)
	mustRelease(t, held)
}

// If no session can be opened in time, the error of the call names the server.
func TestSessionThatIsAwaitedNamesTheServer(t *testing.T) {
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	c, config := counting()
	b := New(newClient(t, n.Addr(addr), config), noDelay())
	require.Equal(t, []string{n.Addr(addr)}, b.Servers())
	l := lockerOn(t, b)
	_, held := acquire(t, l, ttl(long), newKey(t)) // now the range of ttls is known
	mustRelease(t, held)
	n.Silence()
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err := l.Acquire(brief, ttl(2*long), newKey(t))
	require.ErrorContains(t, err, "waiting for a session")
	require.ErrorContains(t, err, n.Addr(addr))
	require.Equal(t, 1, c.take()["GET status/leader"], "the client must be asked once for its server")
	n.Heal()
}

// S67: a server that restarts keeps sessions and locks, and tokens continue to rise. A holder
// keeps its lock if the server is back in time.
func TestRestartedServer(t *testing.T) {
	server := testserver.StartConsul(t, testserver.ConsulOnDisk)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(time.Minute), key)
	before, _ := lock.Token(ctx)
	server.Restart()
	require.NoError(t, lock.Check(ctx))
	require.NotNil(t, pair(t, server.Addr(), key))
	waiter := start(l, ttl(time.Minute), key)
	mustRelease(t, held)
	o := receive(t, waiter)
	require.NoError(t, o.err)
	after, _ := lock.Token(o.ctx)
	require.Greater(t, after, before)
	mustRelease(t, o.held)
}

// forgetful acts as a server that has become the leader but has not read its log yet. It knows no
// session, no key and no change of a key, unless the request asks for consistency.
type forgetful struct {
	http.RoundTripper
	forgets atomic.Bool
	asked   atomic.Int64 // renewals of a session that failed because it forgets
	renewed atomic.Int64 // renewals of a session that succeeded
}

func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	renewal := strings.HasPrefix(path, "/v1/session/renew/")
	if _, consistent := r.URL.Query()["consistent"]; consistent || !f.forgets.Load() {
		answer, err := f.RoundTripper.RoundTrip(r)
		if renewal && err == nil && answer.StatusCode == http.StatusOK {
			f.renewed.Add(1)
		}
		return answer, err
	}
	switch {
	case renewal:
		f.asked.Add(1)
		return broken{http.StatusNotFound, "Session id not found"}.RoundTrip(r)
	case strings.HasPrefix(path, "/v1/session/info/"):
		return broken{http.StatusOK, "[]"}.RoundTrip(r)
	case strings.HasPrefix(path, "/v1/kv/"):
		return broken{http.StatusNotFound, ""}.RoundTrip(r)
	case path == "/v1/txn":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !changes.Match(body) { // answer that nothing has changed
			return broken{http.StatusOK, `{"Results": [], "Errors": null}`}.RoundTrip(r)
		}
	}
	return f.RoundTripper.RoundTrip(r)
}

var changes = regexp.MustCompile(`"Verb":"(set|cas|lock|unlock|delete.*)"`)

// forgetfulClient makes config that of a client of a forgetful server.
func forgetfulClient(config *api.Config, f *forgetful) {
	f.RoundTripper = config.Transport
	config.HttpClient = &http.Client{Transport: f}
}

// Even with such a leader, a list contains a lock that is held, and a holder learns that its lock was deleted.
func TestReadsFromLeaderBehindItsLog(t *testing.T) {
	f := &forgetful{}
	b, key := newBackend(t, testserver.Consul(t), func(config *api.Config) { forgetfulClient(config, f) }), newKey(t)
	l := take(t, b, attempt(key))
	f.forgets.Store(true)
	var keys []string
	for info, err := range b.Locks(t.Context(), key) {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	require.Equal(t, []string{key}, keys)

	_, err := newClient(t, testserver.Consul(t)).KV().Delete(key, nil)
	require.NoError(t, err)
	require.ErrorIs(t, l.Renew(t.Context(), long), lock.ErrLost)
}

// S67: the answers of a new leader that has not caught up yet do not end a session.
func TestLeaderBehindItsLog(t *testing.T) {
	f := &forgetful{}
	l := newLocker(t, testserver.Consul(t), func(config *api.Config) { forgetfulClient(config, f) })
	f.forgets.Store(true)
	ctx, held := acquire(t, l, ttl(3*short), newKey(t))
	eventually(t, soon, "renewals of the session have failed", func() bool { return f.asked.Load() > 1 })
	f.forgets.Store(false)
	eventually(t, soon, "the session was renewed", func() bool { return f.renewed.Load() > 0 })
	require.NoError(t, lock.Check(ctx))
	mustRelease(t, held)
}

// S29: a server that comes back empty knows neither the session nor the lock. The holder
// learns that its lock is lost, and the next acquire creates a session.
func TestServerThatLostItsData(t *testing.T) {
	server := testserver.StartConsul(t)
	l, key := newLocker(t, server.Addr()), newKey(t)
	ctx, held := acquire(t, l, ttl(3*time.Second), key)
	server.Restart()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	wantIs(t, finish(held), lock.ErrLost)
	_, held = acquire(t, l, ttl(3*time.Second), key)
	mustRelease(t, held)
}

// An undo succeeds even if the session has ended and the lock-delay still blocks its keys.
func TestUndoAfterTheSession(t *testing.T) {
	addr := testserver.Consul(t)
	b := New(newClient(t, addr), Options{LockDelay: time.Minute})
	defer b.Close()
	s := take(t, b, attempt(newKey(t))).(*lease).session
	for range 2 {
		a := attempt(newKey(t))
		a.MayHaveRun = true // as if it had no answer
		require.NoError(t, b.Undo(t.Context(), a))
		endSession(t, addr, s.id)
	}
}

// A key that existed before is not deleted if the answer to the acquire was lost.
func TestKeyBeforeAnAttemptWithoutAnAnswer(t *testing.T) {
	addr := testserver.Consul(t)
	for _, undone := range []bool{false, true} {
		n, key := backendtest.NewNetwork(t), existingKey(t, addr)
		b, a := newBackend(t, n.Addr(addr)), attempt(key)
		release(t, take(t, b, attempt(key))) // creates a session
		created := pair(t, addr, key).CreateIndex
		v, ctx, other := viewOf(t, b, key), within(t, soon), newBackend(t, addr)
		ctx, cancel := context.WithCancel(ctx)
		n.LoseReplies()
		taken := make(chan error, 1)
		go func() {
			_, err := (&acquireOp{backend: b, acquisition: a, place: engine.PlaceOf(a)}).take(ctx, v)
			taken <- err
		}()
		eventually(t, soon, "the key is taken", func() bool { return viewOf(t, other, key).heldBy(a.ID) })
		cancel()
		require.ErrorIs(t, receive(t, taken), errNoAnswer)
		n.Heal()
		if undone {
			require.NoError(t, b.Undo(t.Context(), a))
		} else {
			release(t, take(t, b, a))
		}
		p := pair(t, addr, key)
		require.Empty(t, p.Session)
		require.Equal(t, created, p.CreateIndex)
	}
}
