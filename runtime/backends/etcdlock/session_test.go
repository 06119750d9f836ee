package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The client that Open created stays open until its sessions have been revoked.
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

// A lease with NoRenewal has its whole length from the beginning, however old the session's last proof is.
// This holds for a free key, and for an acquisition that has waited.
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
		require.NoError(t, l.Renew(t.Context(), a.TTL)) // a Locker renews such a lease if the policy has a Delay
		require.False(t, l.Deadline().Before(begin.Add(a.TTL)))
	}
	age()
	whole(asTry(fixed(newKey(t), "A:2")))

	key := newKey(t)
	held := taken(t, other, attempt(key, "B:1"))
	a := fixed(key, "A:3")
	requireHeld(t, b, a)
	released(t, held)
	age()
	whole(a)
	require.Len(t, b.sessionsOf("A"), 1)
}

// The same with a Locker, and a Delay that is longer than what is left of the session.
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
