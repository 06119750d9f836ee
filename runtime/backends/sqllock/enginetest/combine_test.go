package enginetest

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Calls that share statements exclude each other, also two for one key in one batch. Tokens
// rise. Afterwards nothing is held.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		alone := acquire(t, b, attempt("first", time.Minute))
		require.NoError(t, alone.Release(t.Context(), first(alone)))
		const goroutines, keys, cycles = 64, 40, 10
		var inside, last [keys]atomic.Int64
		var taken atomic.Int64
		var all sync.WaitGroup
		errs := make([]error, goroutines)
		for g := range goroutines {
			all.Go(func() {
				for range cycles {
					i := g % keys
					l, err := b.Acquire(t.Context(), attempt(fmt.Sprint("k", i), time.Minute))
					var held *driver.HeldError
					if errors.As(err, &held) {
						continue
					}
					taken.Add(1)
					if err != nil {
						errs[g] = err
						return
					}
					token := int64(first(l))
					if inside[i].Add(1) != 1 || last[i].Swap(token) >= token {
						errs[g] = fmt.Errorf("two are inside, or token %d does not rise", token)
					}
					inside[i].Add(-1)
					if err := l.Release(t.Context(), first(l)); err != nil {
						errs[g] = err
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.GreaterOrEqual(t, taken.Load(), int64(2*keys-goroutines)*cycles, "a key of one goroutine was not free")
		require.Zero(t, s.held())
	})
}

// Of two leases on one key one is lost. When both are released in one call, the other leaves its own last
// token.
func TestTwoLeasesOnAKeyAreFreed(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		lost := acquire(t, b, attempt("k", time.Minute))
		_, err := s.db.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET expires = 0")
		require.NoError(t, err)
		held := acquire(t, b, attempt("k", time.Minute))
		leases := []driver.Lease{lost, held}
		errs := b.ReleaseAll(t.Context(), leases, lasts(leases))
		require.ErrorIs(t, errs[0], driver.ErrLost)
		require.NoError(t, errs[1])
		require.EqualValues(t, first(held), s.number("SELECT version FROM "+s.options.Table))
	})
}

// interrupted is a database's answer that a statement has not run.
type interrupted struct{}

func (interrupted) Error() string    { return "the statement was interrupted" }
func (interrupted) SQLState() string { return "57014" }

// If a shared statement has no answer, each of its calls reads its own row, as a call by itself does.
func TestBatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, db := s.watched()
		b := s.backendOn(db)
		const alone = 8 // calls that wait for their rows, so that one more shares a statement
		keys := make([]any, alone)
		for i := range keys {
			keys[i] = []byte(fmt.Sprint("alone", i))
			l := acquire(t, b, attempt(string(keys[i].([]byte)), time.Minute))
			require.NoError(t, l.Release(t.Context(), first(l)))
		}
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, key := range keys {
			_, err = tx.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET acquired = 1 WHERE name = "+s.param(1), key)
			require.NoError(t, err)
		}
		waiting := make(chan struct{}, alone)
		w.meet(func(text string) error {
			if !strings.HasPrefix(text, "SELECT ") && text != "connect" {
				waiting <- struct{}{}
			}
			return nil
		})
		errs := make(chan error, alone)
		for _, key := range keys {
			go func() {
				_, err := b.Acquire(t.Context(), attempt(string(key.([]byte)), time.Minute))
				errs <- err
			}()
		}
		for range keys {
			<-waiting
		}
		answers := []error{errCut, interrupted{}}
		w.meet(func(text string) error {
			if !strings.HasPrefix(text, "INSERT ") || len(answers) == 0 {
				return nil
			}
			next := answers[0]
			answers = answers[1:]
			return next
		})
		a := attempt("k", time.Minute)
		l := acquire(t, b, a)
		require.Empty(t, answers)
		require.True(t, a.MayHaveRun)
		require.NoError(t, l.Release(t.Context(), first(l)))
		require.NoError(t, tx.Rollback())
		for range keys {
			require.NoError(t, <-errs)
		}
	})
}

// After a batch has failed, only a few of its calls are sent by themselves at once. On a *sql.DB without
// limits, each would dial a connection.
func TestCallsOfAFailedBatchAreFewAtOnce(t *testing.T) {
	t.Parallel()
	s := variant{"mariadb", sqllock.Table}.site(t, "")
	w, db := s.watched()
	b := s.backendOn(db)
	l := acquire(t, b, attempt("first", time.Minute))
	require.NoError(t, l.Release(t.Context(), first(l)))
	user, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer user.Close()
	_, err = user.ExecContext(t.Context(), "LOCK TABLES "+s.options.Table+" WRITE") // so that the calls that are sent by themselves wait
	require.NoError(t, err)
	const calls, alone, batches, singles = 100, 8, 4, 32
	var refused atomic.Int64 // calls whose batch was refused
	w.meet(func(text string) error {
		if !strings.HasPrefix(text, "INSERT ") {
			return nil
		}
		refused.Add(max(1, int64(strings.Count(text, "AS column1"))))
		return interrupted{}
	})
	errs := make(chan error, calls)
	for i := range calls {
		go func() {
			_, err := b.Acquire(t.Context(), attempt(fmt.Sprint("k", i), time.Minute))
			errs <- err
		}()
	}
	waiting := "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%' AND info LIKE ?"
	require.Eventually(t, func() bool {
		return refused.Load() == calls-alone && s.number(waiting, "UPDATE %"+s.options.Table+"%") >= alone+singles
	}, waitLimit, time.Millisecond)
	const renewals = 1
	require.LessOrEqual(t, db.Stats().InUse, alone+batches+singles+renewals)
	w.meet(nil)
	_, err = user.ExecContext(t.Context(), "UNLOCK TABLES")
	require.NoError(t, err)
	for range calls {
		require.NoError(t, <-errs)
	}
}

// MySQL tells by a second statement what the first one took. If the second has no answer, each
// row is read.
func TestBatchWithoutASecondAnswer(t *testing.T) {
	t.Parallel()
	s := variant{"mariadb", sqllock.Table}.site(t, "")
	w, db := s.watched()
	b := s.backendOn(db)
	l := acquire(t, b, attempt("there", time.Minute))
	require.NoError(t, l.Release(t.Context(), first(l)))
	asked := false
	w.meet(func(text string) error {
		if asked || !strings.HasPrefix(text, "SELECT CASE owner") {
			return nil
		}
		asked = true
		return interrupted{}
	})
	as := []*driver.Acquisition{attempt("there", time.Minute), attempt("new", time.Minute)}
	for _, a := range as {
		a.Queue = false
	}
	leases, errs := b.AcquireAll(t.Context(), as)
	require.True(t, asked)
	require.NoError(t, errors.Join(errs...))
	require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, lasts(leases))...))
	require.Zero(t, s.held())
}

// An acquire that may have run says so, although the read after it could not be sent.
func TestLookThatIsNotSent(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, b := s.ready()
		sent := false
		w.meet(func(text string) error {
			switch {
			case strings.HasPrefix(text, "SELECT "):
				return sqldriver.ErrBadConn
			case sent || !strings.HasPrefix(text, "INSERT "):
				return nil
			}
			sent = true
			return errCut
		})
		_, err := b.Acquire(t.Context(), attempt("other", time.Minute))
		require.ErrorIs(t, err, driver.ErrIndeterminate)
		w.meet(nil)
	})
}
