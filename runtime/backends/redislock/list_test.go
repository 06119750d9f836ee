package redislock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// list returns the locks of b that match pattern, by key.
func list(t *testing.T, b *Backend, pattern string) map[string]*driver.LockInfo {
	t.Helper()
	all := map[string]*driver.LockInfo{}
	for info, err := range b.Locks(t.Context(), pattern) {
		require.NoError(t, err)
		all[info.Key] = info
	}
	return all
}

// Each kind of lock is listed with its holder and its waiters. A value that is no lock is not listed.
func TestListsEachKind(t *testing.T) {
	t.Parallel()
	addr, prefix := testserver.Redis(t), newKey(t)+":["
	c, l := newClient(t, addr), newLocker(t, addr)
	kinds := map[string]*lock.Policy{"mutex": nil, "write": {Write: true}, "fair": {Fair: true}, "permits": {Permits: 2}}
	for name, p := range kinds {
		_, held := acquire(t, l, p, prefix+name)
		defer mustRelease(t, held)
	}
	const other = "6c1a5ad2-7f0b-4c57-9e0e-6a3a0a9d2f11:54"
	hash := func(name, field string) {
		require.NoError(t, c.HSet(t.Context(), prefix+name, field, "1").Err())
		require.NoError(t, c.PExpire(t.Context(), prefix+name, time.Minute).Err())
	}
	hash("redisson", other)
	hash("rw", other)
	require.NoError(t, c.HSet(t.Context(), prefix+"rw", "mode", "read").Err())
	hash("basket", "apples")
	require.NoError(t, c.Set(t.Context(), prefix+"text", "text", time.Minute).Err())
	require.NoError(t, c.HSet(t.Context(), prefix+"lasting", other, "1").Err())
	t.Cleanup(func() { c.Del(context.Background(), prefix+"lasting", prefix+"text") })

	b := newTestBackend(t, addr)
	all := list(t, b, prefix+"*")
	require.Len(t, all, 6)
	for name := range kinds {
		info := all[prefix+name]
		require.Len(t, info.Holders, 1, name)
		h := info.Holders[0]
		require.Equal(t, "lockgen", h.Client)
		require.InDelta(t, 30, h.Left.Seconds(), 20)
		require.WithinDuration(t, time.Now(), h.Since, time.Minute, name)
		require.NotZero(t, h.Token)
	}
	require.Equal(t, driver.Read|driver.Write, all[prefix+"write"].Kind)
	require.Equal(t, driver.Write, all[prefix+"write"].Holders[0].Kind)
	require.Equal(t, driver.Permits, all[prefix+"permits"].Kind)
	require.Equal(t, driver.Fair, all[prefix+"fair"].Kind)
	require.Equal(t, "Redisson", all[prefix+"redisson"].Holders[0].Client)
	require.Equal(t, driver.Read, all[prefix+"rw"].Holders[0].Kind)
	require.Len(t, list(t, b, strings.Replace(prefix, "TestListsEachKind", "*", 1)+"mute?"), 1)
	_, err := b.Lock(t.Context(), prefix+"text")
	require.ErrorIs(t, err, driver.ErrConflict)
	_, err = b.Lock(t.Context(), prefix+"lasting")
	require.ErrorIs(t, err, driver.ErrConflict)
	info, err := b.Lock(t.Context(), prefix+"nothing")
	require.NoError(t, err)
	require.Nil(t, info)
}

// Break frees a lock of the holder that it names, and of no other. The next in the queue gets
// the lock.
func TestBreaksForTheNext(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	for name, p := range map[string]*lock.Policy{"mutex": nil, "fair": {Fair: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := newKey(t)
			_, held := acquire(t, newLocker(t, addr), p, key)
			b := newTestBackend(t, addr)
			info, err := b.Lock(t.Context(), key)
			require.NoError(t, err)
			next := make(chan error, 1)
			go func() {
				next <- newLocker(t, addr).Do(t.Context(), p, key, func(context.Context) error { return nil })
			}()
			require.Eventually(t, func() bool { return list(t, b, key)[key].Waiters == 1 }, soon, 5*time.Millisecond)
			other := engine.Process(info.Holders[0].ID) + ":999"
			require.ErrorIs(t, b.Break(t.Context(), key, other), driver.ErrLost)
			require.NoError(t, b.Break(t.Context(), key, info.Holders[0].ID))
			require.NoError(t, <-next)
			require.ErrorIs(t, finish(held), lock.ErrLost)
			require.ErrorIs(t, b.Break(t.Context(), key, info.Holders[0].ID), driver.ErrLost)
		})
	}
}

// A Cluster's list has the locks of all masters.
func testClusterList(t *testing.T, c *testserver.Cluster) {
	opened := Open("redis://" + c.Addrs()[0] + "?cluster=true")
	require.NoError(t, opened.Ping(t.Context()))
	l := lockerOn(t, opened)
	prefix := newKey(t)
	var keys []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		_, held := acquire(t, l, nil, prefix+name)
		defer mustRelease(t, held)
		keys = append(keys, prefix+name)
	}
	var found []string
	for key, info := range list(t, opened, prefix+"*") {
		one, err := opened.Lock(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, info.Holders[0].ID, one.Holders[0].ID)
		found = append(found, key)
	}
	slices.Sort(found)
	require.Equal(t, keys, found)
}

// A process that holds a lock is registered once. The registration can be found by an owner's ID until the
// Locker closes.
func TestRegistersItsProcess(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	l := lock.New(New(newClient(t, addr)), &lock.Options{Name: "till 3"})
	closed := false
	defer func() {
		if !closed {
			closeLocker(t, l)
		}
	}()
	key := newKey(t)
	_, held := acquire(t, l, nil, key)
	b := newTestBackend(t, addr)
	info, err := b.Lock(t.Context(), key)
	require.NoError(t, err)
	id := engine.Process(info.Holders[0].ID)
	var p driver.Process
	require.Eventually(t, func() bool {
		text, err := b.Note(t.Context(), "process/"+id)
		return err == nil && text != "" && json.Unmarshal([]byte(text), &p) == nil
	}, soon, 20*time.Millisecond)
	require.Equal(t, "till 3", p.Name)
	require.Equal(t, "redislock.test", p.Service)
	left := newClient(t, addr).PTTL(t.Context(), "lockgen:process:"+id).Val()
	require.Greater(t, left, 30*time.Second)
	mustRelease(t, held)
	closed = true
	closeLocker(t, l)
	text, err := b.Note(t.Context(), "process/"+id)
	require.NoError(t, err)
	require.Empty(t, text)
}

// The error of a refused call names the holder, however long the call waited.
func TestNamesTheHolder(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	holder, l, b := newLocker(t, addr), newLocker(t, addr), newTestBackend(t, addr)
	warm(t, l) // the waits may be too short for making a connection
	const wait = 250 * time.Millisecond
	for name, p := range map[string]*lock.Policy{"mutex": {}, "fair": {Fair: true}} {
		key := newKey(t) + name
		_, held := acquire(t, holder, p, key)
		info, err := b.Lock(t.Context(), key)
		require.NoError(t, err)
		short, tries := *p, *p
		short.Wait, tries.Try = wait, true
		for _, p := range []*lock.Policy{&short, &tries} {
			err := refused(t, l, p, key)
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			require.ErrorContains(t, err, "held by "+info.Holders[0].ID+", whose lease lasts ")
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, _, err = l.Acquire(ctx, p, key)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "held by "+info.Holders[0].ID)
		mustRelease(t, held)
	}
}

// The error for an invalid URL says what is wrong, and does not show the password.
func TestOpensURLs(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	require.NoError(t, lockerOn(t, Open("redis://"+addr+"?dial_timeout=2s")).Ping(t.Context()))
	for text, want := range map[string]string{
		"http://:secret@host":                  `its scheme is "http", not redis, rediss or unix`,
		"redis://:secret@host/x":               `invalid database number: "x"`,
		"redis://:secret@host?nonsense=1":      "unexpected option: nonsense",
		"redis://:secret@ho st":                "it can't be read",
		"redis://bob:secret/x@host:1":          "write %2F",
		"redis://:secret@host/x?master_name=a": `invalid database number: "x"`,
		"redis://:secret@host?addr=b:1&x=1":    "unexpected option: x",
	} {
		err := lockerOn(t, Open(text)).Ping(t.Context())
		require.ErrorIs(t, err, lock.ErrInvalid, text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A user who may not look at a lock gets an error, which says neither that the value is no lock nor
// that the key has none.
func TestListWithoutRights(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "+scan", "+hscan", "+getrange")...)
	l, mutex, fair := newLocker(t, server.Addr()), "seckill:mutex", "seckill:fair"
	for key, p := range map[string]*lock.Policy{mutex: nil, fair: {Fair: true}} {
		_, held := acquire(t, l, p, key)
		defer mustRelease(t, held)
	}
	b := newTestBackend(t, server.Addr(), login)
	require.Len(t, list(t, b, "seckill:*"), 2)
	for right, denies := range map[string][]string{
		"scan": nil, "type": {mutex, fair}, "time": {mutex, fair}, "pttl": {mutex}, "hscan": {mutex}, "getrange": {fair}, "get": {fair},
	} {
		command(t, server.Addr(), "ACL", "SETUSER", "alice", "-"+right)
		var failed error
		for _, err := range b.Locks(t.Context(), "seckill:*") {
			failed = errors.Join(failed, err)
		}
		require.ErrorContains(t, failed, "NOPERM", right)
		for _, key := range denies {
			_, err := b.Lock(t.Context(), key)
			require.ErrorContains(t, err, "NOPERM", right)
			require.NotErrorIs(t, err, driver.ErrConflict, right)
		}
		command(t, server.Addr(), "ACL", "SETUSER", "alice", "+"+right)
	}
}

// With a wrong password the error does not say that the key has no lock either.
func TestListWithAWrongPassword(t *testing.T) {
	t.Parallel()
	addr := testserver.StartRedis(t, "--requirepass", "secret").Addr()
	b := newTestBackend(t, addr, func(o *redis.Options) { o.Password = "mistaken" })
	_, err := b.Lock(t.Context(), "key")
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotErrorIs(t, err, driver.ErrConflict)
}

// In a Cluster, the times of a lock are by the clock of the node that has it.
func TestListsByTheClockOfTheNode(t *testing.T) {
	t.Parallel()
	const owner = "5e2c8a5e-2f4e-8b53-9d5c-1c1d9f9f0a11:31"
	bulk := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	node := func(key string, now time.Time) string {
		return stub(t, func(args []string) string {
			switch args[0] {
			case "scan":
				if args[len(args)-1] == "string" {
					return "*2\r\n$1\r\n0\r\n*0\r\n"
				}
				return "*2\r\n$1\r\n0\r\n*1\r\n" + bulk(key)
			case "time":
				return "*2\r\n" + bulk(strconv.FormatInt(now.Unix(), 10)) + bulk(strconv.Itoa(now.Nanosecond()/1000))
			case "type":
				return "+hash\r\n"
			case "hscan":
				return "*2\r\n$1\r\n0\r\n*2\r\n" + bulk(owner) + bulk("1")
			case "getrange":
				return "-WRONGTYPE it is a hash\r\n"
			case "get":
				return bulk(strconv.FormatInt(4*now.UnixMicro(), 10))
			case "pttl", "zcard", "llen":
				return ":9000\r\n"
			}
			return unknownCommand
		})
	}
	times := map[string]time.Time{"foo": time.Now().Add(time.Hour), "bar": time.Now()} // slots 12182 and 5061
	b := New(clusterOf(t,
		redis.ClusterSlot{End: 8191, Nodes: []redis.ClusterNode{{Addr: node("bar", times["bar"])}}},
		redis.ClusterSlot{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: node("foo", times["foo"])}}}))
	t.Cleanup(func() { _ = b.Close() })
	all := list(t, b, "*")
	require.Len(t, all, 2)
	for key, now := range times {
		require.WithinDuration(t, now, all[key].Holders[0].Since, time.Millisecond, key)
		for range 10 { // any node may be asked
			one, err := b.Lock(t.Context(), key)
			require.NoError(t, err)
			require.WithinDuration(t, now, one.Holders[0].Since, time.Millisecond, key)
		}
	}
}
