//go:build unix

package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// acquiring is the result of acquire.
type acquiring struct {
	held *lock.Hold
	err  error
}

// acquireInBackground acquires the key job in the background.
func acquireInBackground(l *lock.Locker, signals chan os.Signal) chan acquiring {
	out := make(chan acquiring, 1)
	go func() {
		_, held, err := new(command).acquire(context.Background(), l, &lock.Policy{}, "job", signals)
		out <- acquiring{held, err}
	}()
	return out
}

// A terminal whose size changes sends SIGWINCH. It does not end a process that does not handle it.
func TestOnlyFatalSignalsEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer l.Close(context.Background())
		_, other, err := l.Acquire(context.Background(), &lock.Policy{}, "job")
		require.NoError(t, err)
		signals := make(chan os.Signal, 1)

		got := acquireInBackground(l, signals)
		synctest.Wait()
		signals <- syscall.SIGTERM
		assert.Equal(t, exitStatus(128+15), new(command).reached((<-got).err))

		got = acquireInBackground(l, signals)
		synctest.Wait()
		signals <- syscall.SIGWINCH
		synctest.Wait()
		other.Release(nil)
		have := <-got
		require.NoError(t, have.err)
		have.held.Release(nil)
	})
}

// A signal that comes once the lock is held is left for the command.
func TestSignalAfterAcquireIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memlock.New(), nil)
		defer l.Close(context.Background())
		for range 50 {
			signals := make(chan os.Signal, 1)
			_, held, err := new(command).acquire(context.Background(), l, &lock.Policy{}, "job", signals)
			require.NoError(t, err)
			signals <- syscall.SIGUSR1
			synctest.Wait()
			held.Release(nil) // before the check, because Close waits for the release
			require.Len(t, signals, 1)
		}
	})
}
