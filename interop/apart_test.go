package interop

import (
	"context"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

// otherKinds tests a lock of the established client that is not a mutex together with ours on
// one key. The documentation says that the two do not exclude each other.
type otherKinds struct {
	locker *lock.Locker
	theirs func(ctx context.Context, kind, name string) (in bool, err error)
	leave  func(ctx context.Context) error
	is     map[string]string // how our errors name their lock, by kind
	beside bool              // they get their lock although we hold ours
}

var kinds = map[string]*lock.Policy{"read": {Read: true, Try: true}, "write": {Write: true, Try: true}, "permit": {Permits: 2, Try: true}}

func (a *otherKinds) test(t *testing.T) {
	for kind, is := range a.is {
		t.Run(kind, func(t *testing.T) {
			name := "apart:" + kind
			key, err := SectionRunKey(name)
			require.NoError(t, err)
			in, err := a.theirs(t.Context(), kind, name)
			require.NoError(t, err)
			require.True(t, in)
			for asked, p := range kinds {
				_, held, err := a.locker.Acquire(t.Context(), p, key)
				held.Release(nil)
				require.ErrorIs(t, err, lock.ErrConflict, "our %s while they hold their %s", asked, kind)
				require.ErrorContains(t, err, is)
			}
			require.NoError(t, a.leave(t.Context()))
		})
		t.Run(kind+" of ours", func(t *testing.T) {
			name := "ours:" + kind
			key, err := SectionRunKey(name)
			require.NoError(t, err)
			_, held, err := a.locker.Acquire(t.Context(), kinds[kind], key)
			require.NoError(t, err)
			in, err := a.theirs(t.Context(), kind, name)
			if a.beside {
				require.NoError(t, err)
				require.True(t, in)
				require.NoError(t, a.leave(t.Context()))
			} else {
				require.False(t, in)
				t.Logf("they get: %v", err)
			}
			require.NoError(t, lock.Check(held.Context()), "their call has taken our lock")
			err = nil
			held.Release(&err)
			require.NoError(t, err)
		})
	}
}

// kinds acquires a lock of the JVM's client.
func (j *jvm) kinds(ctx context.Context, kind, name string) (bool, error) {
	answer, err := j.ask(ctx, "hold "+kind+" "+name)
	return answer == "locked", err
}

func (j *jvm) leave(ctx context.Context) error {
	_, err := j.ask(ctx, "leave")
	return err
}

// TestRedissonApart checks that Redisson's RReadWriteLock and RPermitExpirableSemaphore do not work together with ours:
// whichever comes second gets an error.
func TestRedissonApart(t *testing.T) {
	addr := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	java := startRedisson(t, addr)
	const rw = "Redisson's read-write lock is at the key"
	a := &otherKinds{locker: newLocker(t, redislock.New(client)), theirs: java.kinds, leave: java.leave,
		is: map[string]string{"read": rw, "write": rw, "permit": "a number, as Redisson's semaphores keep their permits"}}
	a.test(t)
}

// TestCuratorApart checks that Curator's InterProcessReadWriteLock and InterProcessSemaphoreV2 do not work together with
// ours: we get an error while they hold theirs, and they get theirs while we hold ours.
func TestCuratorApart(t *testing.T) {
	addr := testserver.ZooKeeper(t)
	java := startJVM(t, "CuratorPeer", "5000", addr)
	const rw = "Curator's read-write lock is at the key"
	a := &otherKinds{locker: newLocker(t, zklock.New([]string{addr})), theirs: java.kinds, leave: java.leave, beside: true,
		is: map[string]string{"read": rw, "write": rw, "permit": "Curator's semaphore is at the key"}}
	a.test(t)
}

// TestConsulApart checks that Consul's api.Semaphore does not work together with ours: it keeps its contenders below the
// key, and its own key is a conflict for ours.
func TestConsulApart(t *testing.T) {
	addr := testserver.Consul(t)
	client := newConsul(t, addr)
	locker := newLocker(t, consullock.New(newConsul(t, addr)))
	theirs, err := client.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "apart", Limit: 2, SessionTTL: "60s"})
	require.NoError(t, err)
	_, err = theirs.Acquire(nil)
	require.NoError(t, err)
	for _, p := range kinds {
		_, held, err := locker.Acquire(t.Context(), p, "apart")
		require.NoError(t, err, "ours must ignore entries below the key")
		held.Release(&err)
		require.NoError(t, err)
		_, held, err = locker.Acquire(t.Context(), p, "apart/"+api.DefaultSemaphoreKey)
		held.Release(nil)
		require.ErrorIs(t, err, lock.ErrConflict)
		require.ErrorContains(t, err, "a contender of api.Semaphore is at the key")
	}
	_, held, err := locker.Acquire(t.Context(), &lock.Policy{Permits: 2}, "ours/"+api.DefaultSemaphoreKey)
	require.NoError(t, err)
	second, err := client.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "ours", Limit: 2, SessionTTL: "60s", SemaphoreTryOnce: true, SemaphoreWaitTime: waitDelay})
	require.NoError(t, err)
	lost, err := second.Acquire(nil)
	require.ErrorIs(t, err, api.ErrSemaphoreConflict)
	require.Nil(t, lost)
	err = nil
	held.Release(&err)
	require.NoError(t, err)
	require.NoError(t, theirs.Release())
}
