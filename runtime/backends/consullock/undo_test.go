package consullock

import (
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A place that is given up leaves the grant to an earlier acquisition that has begun
// by it, as may be where a Locker knows one Backend by two names.
func TestUndoBesideAnEarlierHolder(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	b.confirms = time.Hour
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	b.mu.Lock()
	b.offers[a.ID].since = driver.Now() // however long this took
	b.mu.Unlock()
	l := take(t, b, a)
	require.Less(t, l.(driver.ProvisionalLease).Term(), grantLimit, "by the grant")
	require.NoError(t, b.Undo(t.Context(), next(a)))
	v := sight(t, b, a.Key)
	require.True(t, v.granted() && v.heldBy(a.ID), "another may have it now")
	require.NoError(t, l.Renew(t.Context(), long))
	require.NoError(t, b.Undo(t.Context(), next(a)))
	require.True(t, sight(t, b, a.Key).heldBy(a.ID))
	release(t, l)
	queued(t, addr, a.Key, 0)
	require.Nil(t, pair(t, addr, a.Key))
}

// One that would begin by its grant while that is being taken back asks for it
// instead: of the two one alone succeeds.
func TestUndoBesideAnEarlierClaim(t *testing.T) {
	addr := testserver.Consul(t)
	a := wish(newKey(t))
	between := &intruder{}
	b := giver(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	b.confirms = time.Hour
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	var l driver.Lease
	between.do = func() { l = take(t, b, a) }
	between.n.Store(2) // it looks, and writes
	require.NoError(t, b.Undo(t.Context(), next(a)))
	require.NotNil(t, l)
	require.True(t, sight(t, b, a.Key).heldBy(a.ID), "another may have it now")
	require.Equal(t, long, l.(driver.ProvisionalLease).Term())
	release(t, l)
	queued(t, addr, a.Key, 0)
	require.Nil(t, pair(t, addr, a.Key))
}

// An offer that is taken back while one begins by it is not begun by: whoever took it
// back found no lease.
func TestClaimOfWhatIsTakenBack(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	b.mu.Lock()
	o := b.offers[a.ID]
	o.since = driver.Now()
	b.mu.Unlock()
	o.session.mu.Lock() // keeps it on its way
	claimed := make(chan *lease)
	go func() { claimed <- (&taking{backend: b, acquisition: a, process: process(a.ID)}).claim() }()
	time.Sleep(20 * time.Millisecond)
	b.noOffer(a.ID)
	o.session.mu.Unlock()
	require.Nil(t, receive(t, claimed))
	require.False(t, b.begun(a.ID))
	b.mu.Lock()
	require.Empty(t, b.young)
	b.mu.Unlock()
	require.NoError(t, b.Undo(t.Context(), a))
	require.Nil(t, pair(t, addr, a.Key))
}

// A Try of the same Locker meanwhile keeps no place that its waiter gives up.
func TestUndoBesideATry(t *testing.T) {
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	waits(t, b, a)
	try := next(a)
	try.Queue = false
	mustHeld(t, b, try)
	require.NoError(t, b.Undo(t.Context(), a))
	queued(t, addr, a.Key, 0)
	give(t, held)
	release(t, take(t, newBackend(t, addr), attempt(a.Key)))
	queued(t, addr, a.Key, 0)
	require.Nil(t, pair(t, addr, a.Key))
}

// A place that came late, after the last of its process had given it up, goes with the
// acquisition that had no answer. While others of the process wait it is theirs.
func TestUndoOfAPlaceThatCameLate(t *testing.T) {
	addr := testserver.Consul(t)
	for _, waiting := range []bool{false, true} {
		b, a := giver(t, addr), wish(newKey(t))
		held := take(t, giver(t, addr), wish(a.Key))
		doing, v := enlisting(t, b, a)
		if waiting {
			s, err := b.Subscribe(t.Context(), a)
			require.NoError(t, err)
			defer s.Close()
		} else {
			require.NoError(t, b.Undo(t.Context(), next(a)))
		}
		require.NoError(t, doing.enlist(t.Context(), v, nil))
		b.unanswered(a, doing.session) // as far as it knows
		queued(t, addr, a.Key, 1)
		a.Queue = false
		require.NoError(t, b.Undo(t.Context(), a))
		if waiting {
			require.Equal(t, []line{{name: process(a.ID)}}, sight(t, b, a.Key).queue.lines)
			require.NoError(t, b.Undo(t.Context(), next(a)))
		}
		queued(t, addr, a.Key, 0)
		release(t, held)
	}
}
