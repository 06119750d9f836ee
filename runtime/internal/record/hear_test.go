package record_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// slow is an engine that executes each write at once, and answers it late.
type slow struct {
	*server
	late atomic.Bool
}

func (s *slow) Swap(_ context.Context, w record.Write) (record.Answer, error) {
	a := s.run(w)
	if s.late.Load() && !w.Look {
		time.Sleep(300 * time.Millisecond) // virtual
	}
	return a, nil
}

// A lease counts from before its request was sent, even if another goroutine of the process saw the
// lease at the engine before the answer came.
func TestSeenBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, life := &slow{server: newHeld(true).server}, engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l := record.NewClockless(s, life, nil)
		s.late.Store(true)
		time.AfterFunc(200*time.Millisecond, func() { _, _ = l.Methods().View(t.Context(), acquisition("k", "b:1")) })
		lease, err := l.Acquire(t.Context(), acquisition("k", "a:1"))
		require.NoError(t, err)
		require.LessOrEqual(t, lease.Deadline().Left(), time.Second-300*time.Millisecond)

		time.AfterFunc(200*time.Millisecond, func() { _, _ = l.Methods().View(t.Context(), acquisition("k", "b:1")) })
		require.NoError(t, lease.Renew(t.Context(), time.Second))
		require.LessOrEqual(t, lease.Deadline().Left(), time.Second-300*time.Millisecond)
	})
}
