package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

func TestLeaseLapses(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		a := driver.Acquisition{Key: "k", ID: "p:1", MayHaveRun: true}
		kept := one.NewLease(&driver.Acquisition{Key: "l", ID: "p:2"}, 1, driver.Now().Add(2*time.Second), nil)
		lease := one.NewLease(&a, 1, driver.Now().Add(2*time.Second), nil)
		require.NoError(t, kept.Extend(driver.Now().Add(4*time.Second)))
		require.NoError(t, kept.Extend(driver.Now().Add(3*time.Second)))
		pass(2 * time.Second)
		require.Equal(t, []driver.Acquisition{a}, saw(s, &s.undone))
		require.Error(t, lease.Extend(driver.Now().Add(time.Hour)))
		require.LessOrEqual(t, lease.Deadline().Left(), time.Duration(0))
		require.Equal(t, 2*time.Second, kept.Deadline().Left())
		pass(2 * time.Second)
		require.Len(t, saw(s, &s.undone), 2)
		freed := one.NewLease(&driver.Acquisition{Key: "m", ID: "p:3"}, 1, driver.Now().Add(time.Second), nil)
		freed.Close()
		pass(time.Minute)
		require.Len(t, saw(s, &s.undone), 2, "what was released is not undone")
		require.True(t, one.Alive())
	})
}

func TestLostLease(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		lease := one.NewLease(&driver.Acquisition{ID: "p:1"}, 1, driver.Now().Add(time.Second), nil)
		told := false
		lease.NotifyLoss(func() { told = true })
		lease.Lose()
		require.True(t, told)
		require.LessOrEqual(t, lease.Deadline().Left(), time.Duration(0))

		cut := one.NewLease(&driver.Acquisition{ID: "p:2"}, 1, driver.Now().Add(time.Minute), nil)
		told = false
		cut.NotifyLoss(func() { told = true })
		one.Shorten(driver.Now().Add(time.Second))
		synctest.Wait()
		require.True(t, told)
		require.Equal(t, time.Second, cut.Deadline().Left())
	})
}

func TestPendingUndo(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one := s.get("a")
		refused := map[string]bool{"p:1": true, "p:2": true, "p:3": true}
		s.undo = func(a *driver.Acquisition) error {
			if refused[a.ID] {
				return errAway
			}
			return nil
		}
		one.AddUndo(&driver.Acquisition{ID: "p:1", MayHaveRun: true})
		one.AddUndo(&driver.Acquisition{ID: "p:1", Queue: true})
		one.AddUndo(&driver.Acquisition{ID: "p:1"})
		one.AddUndo(&driver.Acquisition{ID: "p:2"})
		one.AddUndo(&driver.Acquisition{ID: "p:3"})
		pass(5 * time.Second)
		require.Less(t, s.undos(), 10, "not at full speed")
		one.DropUndo("p:2")
		s.set(func() { delete(refused, "p:1") })
		pass(time.Minute)
		require.Equal(t, []driver.Acquisition{{ID: "p:1", MayHaveRun: true, Queue: true}}, saw(s, &s.undone))
		s.set(func() { delete(refused, "p:3") })
		pass(time.Minute)
		require.Len(t, saw(s, &s.undone), 2)
		s.undos()
		pass(time.Minute)
		require.Zero(t, s.undos())
		one.AddUndo(&driver.Acquisition{ID: "p:4"})
		synctest.Wait()
		require.Len(t, saw(s, &s.undone), 3, "the first is tried at once")

		s.set(func() { refused["p:5"] = true })
		one.AddUndo(&driver.Acquisition{ID: "p:5"})
		synctest.Wait()
		s.undos()
		one.End(errors.New("over"))
		pass(time.Minute)
		require.Equal(t, 1, s.undos(), "the engine forgets it with the session")
		require.False(t, one.HasUndo())
	})
}

// G4, G5: if a release finds no lock, it succeeds only if an earlier attempt had no answer, and so
// may have freed it. The release of a lease that is over frees what is left at the server, and
// returns ErrLost.
func TestReleaseBy(t *testing.T) {
	withServer(t, func(t *testing.T, s *server) {
		one, calls := s.get("a"), 0
		take := func(id string) *engine.Lease {
			return one.NewLease(&driver.Acquisition{ID: id}, 7, driver.Now().Add(time.Second), nil)
		}
		release := func(l *engine.Lease, had, mayHaveRun bool, err error) error {
			return l.ReleaseBy(t.Context(), func(context.Context) (bool, bool, error) {
				calls++
				return had, mayHaveRun, err
			})
		}
		held := take("p:1")
		first, n := held.Tokens()
		require.Equal(t, []uint64{7 << engine.TokenBits, 1}, []uint64{first, n})
		require.NoError(t, release(held, true, false, nil))
		require.ErrorIs(t, release(held, true, false, nil), driver.ErrLost, "it was released already")
		require.Equal(t, 1, calls)

		require.ErrorIs(t, release(take("p:2"), false, false, nil), driver.ErrLost)

		cut := take("p:3")
		require.ErrorIs(t, release(cut, false, true, errAway), errAway)
		require.False(t, cut.Closed())
		require.NoError(t, release(cut, false, false, nil), "the first attempt has freed it")

		undone := take("p:6")
		require.ErrorIs(t, release(undone, true, true, errAway), errAway)
		undone.Close() // as the session does after it has undone the acquisition
		require.NoError(t, release(undone, true, false, nil))
		require.ErrorIs(t, release(undone, true, false, nil), driver.ErrLost, "it was released already")

		leaving := take("p:7")
		require.ErrorIs(t, release(leaving, true, true, errAway), errAway)
		leaving.End() // as the session does before it undoes the acquisition
		require.NoError(t, release(leaving, false, false, nil))

		refused := take("p:4")
		require.ErrorIs(t, release(refused, false, false, errAway), errAway)
		require.ErrorIs(t, release(refused, false, false, nil), driver.ErrLost)

		late := take("p:5")
		s.set(func() { s.undo = func(*driver.Acquisition) error { return errAway } })
		pass(time.Second)
		require.True(t, one.HasUndo(), "it has lapsed")
		require.ErrorIs(t, release(late, true, false, nil), driver.ErrLost)
		require.False(t, one.HasUndo())

		silent := take("p:8")
		pass(time.Second)
		require.ErrorIs(t, release(silent, true, true, errAway), errAway)
		require.ErrorIs(t, release(silent, false, false, nil), driver.ErrLost, "it was over before it was released")
	})
}
