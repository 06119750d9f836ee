package zklock

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

const second = time.Second

// The node has the path, the name and the data that Curator's lock would have. The
// token comes from the transaction that created it, whoever held the lock before.
func TestLayout(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, a, b := admin(t, addr), newClient(t, newBackend(t, root, addr)), newClient(t, newBackend(t, root, addr))
	dir := root + "/seckill:voucher:a%2Fb"
	highest := uint64(0)
	for i := range 6 {
		c := []*peer{a, a, b, b, a, b}[i]
		attempt := c.attempt("seckill:voucher:a/b", long)
		attempt.Tokens = 100_000
		l := c.take(attempt)
		names := contenders(t, conn, dir)
		require.Len(t, names, 1)
		require.Regexp(t, "^"+protectedPrefix(attempt.ID)+"[0-9]{10}$", names[0])
		data, stat, err := conn.Get(path.Join(dir, names[0]))
		require.NoError(t, err)
		require.Equal(t, attempt.ID, string(data))
		require.NotZero(t, stat.EphemeralOwner)
		first, n := l.Tokens()
		require.EqualValues(t, stat.Czxid, first>>16)
		require.EqualValues(t, 1<<16, n, "the lease has all tokens between two transactions")
		require.Greater(t, first, highest)
		highest = first + n - 1
		free(t, l)
		require.Empty(t, contenders(t, conn, dir))
	}
}

// Directories are containers. They are created once, not for every acquire. The servers delete them
// when nobody uses them, and then the client creates them again.
func TestDirectoriesVanish(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, c := admin(t, addr), newClient(t, newBackend(t, root, addr))
	for range 2 {
		l := c.take(c.attempt("k", long))
		there, _, err := conn.Exists(root + "/k")
		require.NoError(t, err)
		require.True(t, there)
		free(t, l)
		eventually(t, soon, "the directories are gone", func() bool {
			there, _, err := conn.Exists(root)
			return err == nil && !there
		})
	}
}

// go-zookeeper's own lock and ours exclude each other on the same path, and a release of one
// wakes the other.
func TestBesideTheClientsOwnLock(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, l := admin(t, addr), newLocker(t, root, addr)
	for range 3 {
		theirs := zk.NewLock(conn, root+"/k", zk.WorldACL(zk.PermAll))
		require.NoError(t, theirs.Lock())
		err := l.Do(t.Context(), &lock.Policy{Try: true}, "k", func(context.Context) error { panic("both") })
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.Len(t, contenders(t, conn, root+"/k"), 1, "a try leaves nothing behind")

		inside := make(chan time.Time)
		leave := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- l.Do(t.Context(), nil, "k", func(context.Context) error {
				inside <- time.Now()
				<-leave
				return nil
			})
		}()
		eventually(t, soon, "ours waits", func() bool { return len(contenders(t, conn, root+"/k")) == 2 })
		released := time.Now()
		require.NoError(t, theirs.Unlock())
		require.Less(t, receive(t, "our turn", inside).Sub(released), 800*time.Millisecond+meter.Since(released), "a notice wakes us, not a poll")

		theirTurn := make(chan error, 1)
		next := zk.NewLock(conn, root+"/k", zk.WorldACL(zk.PermAll))
		go func() { theirTurn <- next.Lock() }()
		eventually(t, soon, "theirs waits", func() bool { return len(contenders(t, conn, root+"/k")) == 2 })
		require.Empty(t, theirTurn)
		close(leave)
		require.NoError(t, receive(t, "our end", done))
		require.NoError(t, receive(t, "their turn", theirTurn))
		require.NoError(t, next.Unlock())
	}
}

// S73: children that do not belong to a lock are ignored, in each listing.
func TestForeignChildren(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, c := admin(t, addr), newClient(t, newBackend(t, root, addr))
	free(t, c.take(c.attempt("k", long)))
	for _, junk := range []string{"junk", "lock-", "aaa-0000000000", "lock-x000000000"} {
		_, err := conn.Create(root+"/k/"+junk, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	free(t, c.take(c.attempt("k", long)))
}

// S39: if a lock of another kind is at the key, the acquire returns a conflict that names that kind. The
// other lock stays as it is.
func TestForeignKindIsNamed(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, c := admin(t, addr), newClient(t, newBackend(t, root, addr))
	free(t, c.take(c.attempt("k", long)))
	for node, is := range map[string]string{
		"_c_x-__READ__": "Curator's read-write lock",
		"_c_x-__WRIT__": "Curator's read-write lock",
		"leases":        "Curator's semaphore",
		"x__rlock__":    "kazoo's read lock",
		"__lock__":      "kazoo's semaphore",
		"_c_x-lock-":    "a mutex",
	} {
		flags := int32(zk.FlagEphemeralSequential)
		if is == "Curator's semaphore" || is == "kazoo's semaphore" {
			flags = zk.FlagPersistent
		}
		at, err := conn.Create(root+"/k/"+node, nil, flags, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for _, kind := range []driver.Kind{0, driver.Read, driver.Write, driver.Fair, driver.Permits} {
			a := c.attempt("k", long)
			if a.Mode.Kind = kind; kind == driver.Permits {
				a.Mode.Permits, a.Mode.Weight = 2, 1
			}
			if kind == 0 && is == "a mutex" {
				c.held(a)
				continue
			}
			_, err := c.Acquire(t.Context(), a)
			require.ErrorIs(t, err, lock.ErrConflict, "%v at %s", kind, node)
			require.ErrorContains(t, err, ": "+is+" is at the key", "%v at %s", kind, node)
			require.NoError(t, c.Undo(t.Context(), a))
		}
		require.Equal(t, []string{path.Base(at)}, contenders(t, conn, root+"/k"), "the other node must stay, and no node of ours")
		require.NoError(t, conn.Delete(at, -1))
	}
	later, err := conn.Create(root+"/other", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	l := c.take(c.attempt("other", long))
	at, err := conn.Create(later+"/_c_x-__READ__", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, l.Renew(t.Context(), long), "a node that was created later is behind ours")
	free(t, l)
	require.NoError(t, conn.Delete(at, -1))
}

// S39: data at the key that is not a lock stays as it is.
func TestSomethingElseAtTheKey(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, l := admin(t, addr), newLocker(t, root, addr)
	require.NoError(t, l.Do(t.Context(), nil, "other", func(context.Context) error { return nil }))
	_, err := conn.Create(root+"/config", []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, err = conn.Create(root+"/leader", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for key, says := range map[string]string{"config": "holds 8 bytes", "leader": "ephemeral"} {
		for _, p := range []*lock.Policy{nil, {Try: true}} {
			err := l.Do(t.Context(), p, key, func(context.Context) error { panic("ran") })
			require.ErrorIs(t, err, lock.ErrConflict)
			require.ErrorContains(t, err, says)
			eventually(t, soon, "no node is left", func() bool { return len(contenders(t, conn, root+"/"+key)) == 0 })
		}
	}
	data, _, err := conn.Get(root + "/config")
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
}

// An acquire and a release of a free key take three requests.
func TestRequests(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	l, other := newLocker(t, root, p.Addr()), newLocker(t, root, addr)
	do := func(l *lock.Locker) {
		require.NoError(t, l.Do(t.Context(), &lock.Policy{TTL: 40 * second}, "k", func(context.Context) error { return nil }))
	}
	do(l) // the session sends keep-alives only after 5 s, so they are not counted below
	for range 5 {
		p.ResetCounts()
		do(l)
		require.Equal(t, map[string]int{"CREATE": 1, "GETCHILDREN": 1, "DELETE": 1}, p.Counts())
		do(other) // locks of other clients in between make no difference
	}
}

// Leases of similar lengths share a session. While they are held, the session sends two requests in
// each eighth of their length, however many leases there are.
func TestManyLeasesOneSession(t *testing.T) {
	t.Parallel()
	addr, root := testserver.StartZooKeeper(t).Addr(), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	b := newBackend(t, root, p.Addr())
	c := newClient(t, b)
	const n, length = 60, 40 * second
	var leases []driver.Lease
	var ttls []time.Duration
	for i := range n {
		leases = append(leases, c.take(c.attempt(string(rune('a'+i%26))+time.Duration(i).String(), length+time.Duration(i%2)*20*time.Millisecond)))
		ttls = append(ttls, length)
	}
	for _, err := range b.RenewAll(t.Context(), leases, ttls) { // the first renewal sets watches
		require.NoError(t, err)
	}
	require.Equal(t, 1, p.Links())
	p.ResetCounts()
	begin := time.Now()
	for range 20 {
		for _, err := range b.RenewAll(t.Context(), leases, ttls) {
			require.NoError(t, err)
		}
	}
	counts, beats := p.Counts(), int(time.Since(begin)/(length/8))+1
	require.LessOrEqual(t, counts["EXISTS"]+counts["DELETE"]+counts["GETDATA"], 2*beats, "%v", counts)
}

func TestNewRefusesWhatCannotBeRight(t *testing.T) {
	require.Panics(t, func() { New(nil) })
	for _, root := range []string{"locks", "/locks/", "/a//b", "/a/../b"} {
		require.Panics(t, func() { New([]string{"localhost"}, Options{Root: root}) }, root)
	}
}
