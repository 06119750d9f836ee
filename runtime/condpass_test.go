package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// If a Wait that was woken can't take the lock again, its signal is not lost: the next call is
// woken.
func TestCondWaitPassesItsSignalOn(t *testing.T) {
	for name, ends := range map[string]func(t *testing.T, l *lock.Locker, end context.CancelFunc){
		"method": func(_ *testing.T, _ *lock.Locker, end context.CancelFunc) { end() },
		"close": func(t *testing.T, l *lock.Locker, _ context.CancelFunc) {
			go func() { require.NoError(t, l.Close(t.Context())) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				engine := memlock.New()
				wait := func(ctx context.Context) (*lock.Locker, chan error) {
					l, returned := newLocker(t, engine, nil), make(chan error, 1)
					go func() { returned <- l.Do(ctx, nil, "k", lock.NewCond(l, "k").Wait) }()
					time.Sleep(10 * time.Millisecond)
					return l, returned
				}
				method, end := context.WithCancel(t.Context())
				defer end()
				l, first := wait(method)
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, second := wait(limited)
				s := newLocker(t, engine, nil)
				require.NoError(t, s.Do(t.Context(), nil, "k", func(ctx context.Context) error {
					require.NoError(t, lock.NewCond(s, "k").Signal(ctx))
					time.Sleep(50 * time.Millisecond)
					ends(t, l, end)
					time.Sleep(200 * time.Millisecond)
					return nil
				}))
				began := time.Now()
				require.ErrorIs(t, <-first, lock.ErrLost)
				require.NoError(t, <-second, "the signal is lost")
				require.Less(t, time.Since(began), 5*time.Second)
			})
		})
	}
}

// A Wait that takes an outer lock again still holds the inner locks. The holder of the outer lock
// may wait for one of them; then one of the two gives up.
func TestCondWaitIsPartOfADeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		cond, waited := lock.NewCond(l, "a"), make(chan error, 1)
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			waited <- l.Do(limited, nil, "a", func(ctx context.Context) error { return l.Do(ctx, nil, "b", cond.Wait) })
		}()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		err := l.Do(limited, nil, "a", func(ctx context.Context) error {
			require.NoError(t, cond.Signal(ctx))
			time.Sleep(10 * time.Millisecond)
			return l.Do(ctx, nil, "b", func(context.Context) error { return nil })
		})
		require.ErrorIs(t, errors.Join(err, <-waited), lock.ErrDeadlock)
		require.Less(t, time.Since(began), time.Second)
	})
}
