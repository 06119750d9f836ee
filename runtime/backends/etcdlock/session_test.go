package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The client that Open has made stays open until its sessions were given back.
func TestCloseOfAnOpenedBackend(t *testing.T) {
	t.Parallel()
	for range 10 {
		b, key := Open("etcd://"+shared(t)), newKey(t)
		taken(t, b, attempt(key, "A:1"))
		require.NoError(t, b.Close())
		keys, _ := below(t, admin(t, shared(t)), key+"/")
		require.Empty(t, keys)
	}
}

// A lease that may not be renewed has its whole length from the first, however long ago the
// session was proved to live: on a free key, and for one that has waited.
func TestFixedLease(t *testing.T) {
	t.Parallel()
	b, other := newBackend(t, shared(t)), newBackend(t, shared(t))
	fixed := func(key, id string) *driver.Acquisition {
		a := attempt(key, id)
		a.NoRenewal = true
		return a
	}
	taken(t, b, fixed(newKey(t), "A:1"))
	s := b.sessionsOf("A")[0]
	age := func() { s.Shorten(driver.Now().Add(5 * time.Second)) }
	whole := func(a *driver.Acquisition) {
		t.Helper()
		begin := driver.Now()
		l := taken(t, b, a)
		require.False(t, l.Deadline().Before(begin.Add(a.TTL)))
		age()
		begin = driver.Now()
		require.NoError(t, l.Renew(t.Context(), a.TTL)) // with a Delay it is
		require.False(t, l.Deadline().Before(begin.Add(a.TTL)))
	}
	age()
	whole(only(fixed(newKey(t), "A:2")))

	key := newKey(t)
	held := taken(t, other, attempt(key, "B:1"))
	a := fixed(key, "A:3")
	requireHeld(t, b, a)
	released(t, held)
	age()
	whole(a)
	require.Len(t, b.sessionsOf("A"), 1)
}

// The same under a Locker, whose lock stays closed after it is lost for longer than the session
// lasts by then.
func TestDelayOnAnAgedSession(t *testing.T) {
	t.Parallel()
	b := New(newClient(t, []string{shared(t)}))
	l, p := lockerOn(t, b), &lock.Policy{TTL: time.Second, Delay: 9 * time.Second, Try: true}
	_, held := acquire(t, l, p, newKey(t))
	require.NoError(t, finish(held))
	b.sessions.All()[0].Shorten(driver.Now().Add(5 * time.Second))
	_, held = acquire(t, l, p, newKey(t))
	require.NoError(t, finish(held))
}
