package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// waiter is one that stands in the line, with its Locker's ear.
type waiter struct {
	*client
	a      *driver.Acquisition
	called driver.Subscription
}

func newWaiter(t *testing.T, b *Backend) *waiter {
	t.Helper()
	w := &waiter{client: newClient(t, b)}
	w.a = w.waiting("k", long)
	var err error
	w.called, err = w.Subscribe(t.Context(), w.a)
	require.NoError(t, err)
	t.Cleanup(w.called.Close)
	w.held(w.a)
	return w
}

func (w *waiter) place() *place {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line[spotOf(w.a)]
}

// turn has w take the lock when it is told. It may be told of another before.
func (w *waiter) turn() driver.Lease {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for {
		receive(w.t, "the call", w.called.C())
		l, err := w.Acquire(ctx, w.a)
		var held *driver.HeldError
		if !errors.As(err, &held) {
			require.NoError(w.t, err)
			return l
		}
	}
}

// looks has w look again when it is told, in vain.
func (w *waiter) looks() {
	w.t.Helper()
	receive(w.t, "the call", w.called.C())
	w.held(w.a)
}

// aheadOf has n wait at k, one after the other, the first of whom has it. None of
// them shares a session.
func aheadOf(t *testing.T, root, addr string, n int) (holder driver.Lease, waiters []*waiter) {
	t.Helper()
	first := newClient(t, newBackend(t, root, addr))
	holder = first.take(first.attempt("k", long))
	for range n - 1 {
		waiters = append(waiters, newWaiter(t, newBackend(t, root, addr)))
	}
	return holder, waiters
}

// listeners counts those that b's sessions would tell of a node.
func listeners(b *Backend) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		s.watches.mu.Lock()
		for _, w := range s.watches.path {
			n += len(w.calls)
		}
		s.watches.mu.Unlock()
	}
	return n
}

// reconnect has s go on over another connection.
func reconnect(t *testing.T, s *session, p *faultproxy.Proxy) {
	t.Helper()
	lost := s.isUp()
	p.Heal()
	p.Reset()
	eventually(t, soon, "another connection", func() bool {
		up := s.isUp()
		return up != lost && closed(up)
	})
}

// Who joins behind others asks who is left while the one before it has the lock,
// and has it from that one without a question. Where two were before it, it need
// not even ask then.
func TestLaterInLineAsksNothing(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 4; n++ {
		for _, crowded := range []bool{false, true} { // by another of the same process
			t.Run(fmt.Sprint(n, crowded), func(t *testing.T) {
				t.Parallel()
				addr, root, p, c := proxied(t)
				holder, others := aheadOf(t, root, addr, n)
				last := newWaiter(t, c.Backend)
				place := last.place()
				watches := 1
				if crowded {
					newWaiter(t, c.Backend)
					watches = 0
				}
				p.ResetCounts()
				for i, other := range others {
					require.Empty(t, last.called.C(), "%d are before it", n-i)
					free(t, holder)
					holder = other.turn()
				}
				last.looks()
				require.NotZero(t, place.czxid)
				counts := p.Counts()
				require.Equal(t, []int{min(n-2, 1), watches}, []int{counts["GETCHILDREN"], counts["GETDATA"]}, "%v", counts)
				p.Hole(faultproxy.Requests)
				free(t, holder)
				l := last.turn()
				require.Greater(t, first(l), first(holder))
				reconnect(t, place.session, p)
				free(t, l)
			})
		}
	}
}

// The second before it leaves between the listing and the watch on that one.
func TestSecondLeavesUnwatched(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	holder, others := aheadOf(t, root, addr, 2)
	late := p.Late(faultproxy.Op("getData", holder.(*lease).place.path))
	joined := make(chan *waiter, 1)
	go func() { joined <- newWaiter(t, c.Backend) }()
	receive(t, "the watch", late.Arrived())
	free(t, holder)
	holder = others[0].turn()
	require.NoError(t, late.Deliver(t.Context()))
	last := receive(t, "the waiter", joined)
	place := last.place()
	p.Hole(faultproxy.Requests)
	free(t, holder)
	l := last.turn()
	reconnect(t, place.session, p)
	free(t, l)
}

// The second before it, which it watches, leaves when it has no watch on the one
// before it: the answer was lost, with the connection or the caller's patience. Once
// it has looked again, that end counts for nothing.
func TestSecondLeavesWhileNextIsUnwatched(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	holder, others := aheadOf(t, root, addr, 2)
	last := newWaiter(t, newBackend(t, root, addr))
	place := last.place()
	place.unwatch(onNext)
	second := place.on(onSecond)
	free(t, holder)
	holder = others[0].turn()
	eventually(t, soon, "it is told", second.hasGone)
	for range 3 {
		last.held(last.a)
	}
	free(t, holder)
	free(t, last.turn())
}

// Nodes that may not be read are not watched; they are before it all the same.
func TestUnreadableAhead(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, dir := admin(t, addr), root+"/k"
	first := newClient(t, newBackend(t, root, addr))
	held := first.take(first.attempt("k", long)) // so that the directory stands
	node := func(acl []zk.ACL) string {
		at, err := conn.CreateProtectedEphemeralSequential(dir+"/lock-", nil, acl)
		require.NoError(t, err)
		return at
	}
	hidden := zk.DigestACL(zk.PermAll, "somebody", "else")
	holder, middle, next := node(hidden), node(zk.WorldACL(zk.PermAll)), node(hidden)
	free(t, held)
	last := newWaiter(t, newBackend(t, root, addr))
	require.Equal(t, []string{path.Base(middle)}, waitedFor(last.Backend, dir))
	for _, at := range []string{next, middle} {
		require.NoError(t, conn.Delete(at, -1))
		for range 3 {
			last.held(last.a)
		}
	}
	require.NoError(t, conn.Delete(holder, -1))
	free(t, last.take(last.a))
}

// A try looks no further than to the one before it.
func TestTryLooksNotAhead(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	for n := 1; n <= 2; n++ {
		holder, others := aheadOf(t, root, addr, n)
		p.ResetCounts()
		c.held(c.attempt("k", long))
		require.Equal(t, 1, p.Count("GETDATA"))
		free(t, holder)
		for _, other := range others {
			free(t, other.turn())
		}
	}
}

// The answer to a request for a watch that has told already counts for no later one.
func TestWatchIsAnsweredLate(t *testing.T) {
	t.Parallel()
	ws := watches{path: map[string]*watched{}}
	told := 0
	early, late := &watcher{path: "/a", tell: func(bool) { told++ }}, &watcher{path: "/a"}
	n, _ := ws.add(early)
	ws.tell("/a", true)
	require.Equal(t, 1, told)
	require.True(t, early.hasGone())
	m, armed := ws.add(late)
	require.False(t, armed)
	up := make(chan struct{})
	ws.arm("/a", n, up)
	require.False(t, ws.has(late))
	ws.arm("/a", m, up)
	require.True(t, ws.has(late))
	require.False(t, ws.has(early))
}

// Those in the middle of the line who give up make nobody the first but the next
// one, in whatever order they go.
func TestMiddleOfTheLineGivesUp(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			addr, root := testserver.ZooKeeper(t), newRoot(t)
			p := faultproxy.NewZooKeeper(t, addr)
			holder, middle := aheadOf(t, root, addr, 4)
			last := newWaiter(t, newBackend(t, root, p.Addr()))
			place := last.place()
			for left, i := range order {
				next, second := place.on(onNext), place.on(onSecond)
				path := middle[i].place().path
				told := path == next.path || second != nil && path == second.path
				require.NoError(t, middle[i].Undo(t.Context(), middle[i].a))
				if told {
					last.looks()
				} else {
					last.held(last.a)
				}
				require.False(t, place.inherits())
				require.GreaterOrEqual(t, place.rank, 4-left, "%d have left", left+1)
			}
			p.Hole(faultproxy.Requests)
			free(t, holder)
			l := last.turn()
			reconnect(t, place.session, p)
			free(t, l)
		})
	}
}

// Whoever is told of nothing any more is forgotten, with its node.
func TestWatchesOfALineEnd(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	b := newBackend(t, root, addr)
	for round, n := range []int{2, 2, 3, 2} {
		holder, others := aheadOf(t, root, addr, n)
		last := newWaiter(t, b)
		require.Equal(t, 2, listeners(b))
		switch round {
		case 0: // it gives up
			require.NoError(t, last.Undo(t.Context(), last.a))
			require.Zero(t, listeners(b))
			free(t, holder)
			free(t, others[0].turn())
		case 1: // as the next in line
			free(t, holder)
			holder = others[0].turn()
			last.looks()
			require.Equal(t, 2, listeners(b))
			require.NoError(t, last.Undo(t.Context(), last.a))
			require.Zero(t, listeners(b))
			free(t, holder)
		case 2: // it takes the lock, after the one before it gave up
			require.NoError(t, others[1].Undo(t.Context(), others[1].a))
			last.looks()
			require.Equal(t, 2, listeners(b))
			free(t, holder)
			holder = others[0].turn()
			last.looks()
			require.Equal(t, 2, listeners(b))
			free(t, holder)
			l := last.turn()
			require.Equal(t, 1, listeners(b), "it goes on with its own node's")
			free(t, l)
		case 3: // the one before it gives up, and it is the next
			require.NoError(t, others[0].Undo(t.Context(), others[0].a))
			last.looks()
			require.Equal(t, 2, listeners(b))
			free(t, holder)
			free(t, last.turn())
		}
		require.Zero(t, listeners(b))
	}
	eventually(t, soon, "the server has told of all", func() bool { return len(waitedFor(b, root+"/k")) == 0 })
}
