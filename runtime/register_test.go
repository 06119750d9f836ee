package lock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// registry is a memory engine with notes. It records what Lockers write about themselves.
type registry struct {
	*memlock.Backend
	mu    sync.Mutex
	calls []time.Duration // the ttl of each note
	last  driver.Process
}

func (r *registry) Attach() {}

func (r *registry) PutNote(_ context.Context, name, text string, ttl time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, ttl)
	if ttl == 0 {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &r.last); err != nil || name != "process/"+r.last.ID {
		panic(fmt.Sprintf("the note %q is %q", name, text))
	}
	return nil
}

// seen returns the ttl of each note, and the process that the last note describes.
func (r *registry) seen() ([]time.Duration, driver.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls), r.last
}

// A Locker registers once it has held a lock for a while, whatever the number of its locks. It
// registers again from time to time, and no more once it is closed.
func TestRegistersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{Backend: memlock.New()}
		l := lock.New(r, &lock.Options{Name: "till 3"})
		time.Sleep(time.Hour)
		calls, _ := r.seen()
		require.Empty(t, calls, "it has held no lock")
		for range 100 {
			require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		}
		calls, _ = r.seen()
		require.Empty(t, calls, "it is too early")
		time.Sleep(50 * time.Second)
		calls, last := r.seen()
		require.Equal(t, []time.Duration{time.Minute, time.Minute, time.Minute}, calls)
		require.Equal(t, "till 3", last.Name)
		require.NotZero(t, last.PID)
		require.Len(t, last.ID, 36)
		require.NoError(t, l.Close(t.Context()))
		time.Sleep(time.Hour)
		calls, _ = r.seen()
		require.Equal(t, []time.Duration{time.Minute, time.Minute, time.Minute, 0}, calls)
	})
}

// A Locker that is closed early has written no note, and removes none.
func TestRegistersNothingInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{Backend: memlock.New()}
		l := lock.New(r, nil)
		require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }))
		require.NoError(t, l.Close(t.Context()))
		time.Sleep(time.Hour)
		calls, _ := r.seen()
		require.Empty(t, calls)
	})
}

// silentRegistry does not answer when a note is removed.
type silentRegistry struct{ *registry }

func (r *silentRegistry) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if ttl == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.registry.PutNote(ctx, name, text, ttl)
}

// If several engines are silent while a Locker is closed, its caller waits for as long as for one.
func TestCloseWithSilentRegistries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := map[string]driver.Backend{}
		for _, name := range []string{"", "a", "b", "c"} {
			all[name] = &silentRegistry{&registry{Backend: memlock.New()}}
		}
		own := all[""]
		delete(all, "")
		l := lock.New(own, &lock.Options{Backends: all})
		for _, name := range []string{"", "a", "b", "c"} {
			require.NoError(t, l.Do(t.Context(), &lock.Policy{Backend: name}, "k", func(context.Context) error { return nil }))
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, time.Second, time.Since(began))
	})
}
