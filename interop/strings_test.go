package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// The clients here lock by a string (SET NX PX). They and ours exclude each other;
// with redislock.Options.WaitForStrings ours waits for them. Both sides poll, at this interval.
const pollEvery = 10 * time.Millisecond

func TestRedsync(t *testing.T) {
	testStrings(t, "redsync", func(c *redis.Client) client {
		return &redsyncPeer{locks: redsync.New(goredis.NewPool(c))}
	})
}

func TestBsmRedislock(t *testing.T) {
	testStrings(t, "bsm/redislock", func(c *redis.Client) client {
		return &bsmPeer{locks: bsm.New(c)}
	})
}

func testStrings(t *testing.T, name string, peer func(*redis.Client) client) {
	c := redis.NewClient(&redis.Options{Addr: testserver.Redis(t)})
	defer c.Close()
	p := &pair{
		peer:     name + ", a string",
		theirs:   peer(c),
		ours:     newLockgen(t, redislock.New(c, redislock.Options{WaitForStrings: true})),
		sections: 200,
	}
	p.test(t)
	t.Run("expires", func(t *testing.T) {
		const key = "interop:dead"
		begin := time.Now() // before the key is set, since the answer may be late
		require.NoError(t, c.Set(t.Context(), key, "of a process that died", time.Second).Err())
		require.NoError(t, p.ours.lock(t.Context(), "dead"))
		require.GreaterOrEqual(t, time.Since(begin), 900*time.Millisecond)
		require.NoError(t, p.ours.unlock(t.Context()))
	})
	t.Run("off", func(t *testing.T) { // the default
		plain := newLockgen(t, redislock.New(c))
		require.NoError(t, p.theirs.lock(t.Context(), "off"))
		require.ErrorIs(t, plain.lock(t.Context(), "off"), lock.ErrConflict)
		require.NoError(t, p.theirs.unlock(t.Context()))
	})
}

// redsyncPeer is a service that uses redsync.
type redsyncPeer struct {
	wait
	locks *redsync.Redsync
	held  *redsync.Mutex
}

func (r *redsyncPeer) mutex(name string, tries int) *redsync.Mutex {
	encoded, err := SectionRunKey(name)
	if err != nil {
		panic(err) // no name of the tests fails
	}
	return r.locks.NewMutex(encoded, redsync.WithExpiry(time.Minute), redsync.WithTries(tries), redsync.WithRetryDelay(pollEvery))
}

func (r *redsyncPeer) lock(ctx context.Context, name string) error {
	r.begin()
	r.held = r.mutex(name, int(answerTimeout/pollEvery))
	return r.held.LockContext(ctx)
}

func (r *redsyncPeer) try(ctx context.Context, name string) (bool, error) {
	r.held = r.mutex(name, 1)
	err := r.held.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return false, nil
	}
	return err == nil, err
}

func (r *redsyncPeer) unlock(ctx context.Context) error {
	r.end()
	_, err := r.held.UnlockContext(ctx)
	return err
}

func (r *redsyncPeer) waits(context.Context, string) (bool, error) { return r.lasted(pollEvery), nil }

// bsmPeer is a service that uses bsm/redislock, changed as docs/migration.md says.
type bsmPeer struct {
	wait
	locks *bsm.Client
	held  *bsm.Lock
}

func (b *bsmPeer) lock(ctx context.Context, name string) error {
	b.begin()
	for {
		in, err := b.try(ctx, name)
		if in || err != nil {
			return err
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *bsmPeer) try(ctx context.Context, name string) (bool, error) {
	encoded, err := SectionRunKey(name)
	if err != nil {
		return false, err
	}
	b.held, err = b.locks.Obtain(ctx, encoded, time.Minute, nil)
	if isHeldFromBsm(err) {
		return false, nil
	}
	return err == nil, err
}

// isHeldFromBsm reports whether err means that another client has the lock. The script of bsm/redislock reads the
// value of the key, which fails if it is the hash of ours.
func isHeldFromBsm(err error) bool {
	return errors.Is(err, bsm.ErrNotObtained) || redis.HasErrorPrefix(err, "WRONGTYPE")
}

func (b *bsmPeer) unlock(ctx context.Context) error {
	b.end()
	return b.held.Release(ctx)
}

func (b *bsmPeer) waits(context.Context, string) (bool, error) { return b.lasted(pollEvery), nil }
