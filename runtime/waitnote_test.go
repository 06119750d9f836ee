package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// newProcesses returns Lockers that know of each other's waits only by notes.
func newProcesses(t *testing.T, n int, b driver.Backend, opts *lock.Options) (all []*lock.Locker) {
	for range n {
		l := newLocker(t, b, opts)
		l.ByItself()
		all = append(all, l)
	}
	return all
}

// ringOf is ring with each call in a process of its own. The calls begin within spread.
func ringOf(t *testing.T, processes []*lock.Locker, p *lock.Policy, spread time.Duration) (victims []error) {
	n := len(processes)
	errs := make([]error, n)
	concurrently(n, func(i int) {
		time.Sleep(draw(spread))
		errs[i] = nestKeys(t, processes[i:i+1], p, fmt.Sprint("k", i), fmt.Sprint("k", (i+1)%n))
	})
	for _, err := range errs {
		if err != nil {
			victims = append(victims, err)
		}
	}
	return victims
}

// slowNotes is an engine whose requests and answers about notes take up to 5 ms each.
type slowNotes struct {
	*memlock.Backend
	keeps bool // fail to withdraw notes
}

func delayNote() { time.Sleep(draw(5 * time.Millisecond)) }

// draws yields the same numbers in each run of the tests.
var draws = struct {
	sync.Mutex
	*rand.Rand
}{Rand: rand.New(rand.NewPCG(18, 6))}

// draw returns a duration from 0 to below.
func draw(below time.Duration) time.Duration {
	draws.Lock()
	defer draws.Unlock()
	return time.Duration(draws.Int64N(int64(below) + 1))
}

func (s slowNotes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	delayNote()
	defer delayNote()
	if s.keeps && ttl == 0 {
		return errors.New("down")
	}
	return s.Backend.PutNote(ctx, name, text, ttl)
}

func (s slowNotes) Note(ctx context.Context, name string) (string, error) {
	delayNote()
	defer delayNote()
	return s.Backend.Note(ctx, name)
}

// A deadlock between several processes is resolved within a second, by one victim.
func TestDeadlockOfProcesses(t *testing.T) {
	times := 500
	if testing.Short() {
		times = 50
	}
	bubble(t, func(t *testing.T) {
		processes := newProcesses(t, 8, slowNotes{Backend: memlock.New()}, nil)
		for i := range times {
			began := time.Now()
			victims := ringOf(t, processes[:2+i%7], nil, 999*time.Microsecond)
			require.LessOrEqual(t, time.Since(began), time.Second)
			require.Len(t, victims, 1)
			require.ErrorIs(t, victims[0], lock.ErrDeadlock)
			require.NotErrorIs(t, victims[0], context.Canceled)
		}
	})
}

// The last call closes a cycle while the others have waited for long. They learn of it when that
// call looks for a cycle, half a second later. After that they only have to agree.
func TestLateCycleOfProcesses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			processes := newProcesses(t, 2, slowNotes{Backend: memlock.New()}, nil)
			first := make(chan error, 1)
			ctx, stock := acquire(t, t.Context(), processes[0], nil, "stock")
			go func() { first <- nestKeys(t, processes[1:], nil, "voucher", "stock") }()
			time.Sleep(10*time.Second + draw(time.Second))
			began := time.Now()
			_, held, err := processes[0].Acquire(ctx, nil, "voucher")
			took := time.Since(began)
			held.Release(nil)
			require.NoError(t, release(stock))
			require.LessOrEqual(t, took, 650*time.Millisecond)
			other := <-first
			require.True(t, errors.Is(err, lock.ErrDeadlock) != errors.Is(other, lock.ErrDeadlock), "%v; %v", err, other)
		}
	})
}

func TestDeadlockOfProcessesInWords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		processes := newProcesses(t, 2, memlock.New(), &lock.Options{Prefix: "test:"})
		errs := make([]error, 2)
		concurrently(2, func(i int) {
			keys := []string{"voucher:1", "stock:1"}
			errs[i] = nestKeys(t, processes[i:i+1], &lock.Policy{Method: "Shop.Buy"}, keys[i], keys[1-i])
		})
		text := errors.Join(errs...).Error()
		if errs[1] != nil { // either call may be the victim
			text = strings.NewReplacer("voucher", "stock", "stock", "voucher").Replace(text)
		}
		require.Regexp(t, regexp.MustCompile(`^lock: acquire stock:1 \(Shop.Buy\): deadlock: calls wait for each other: `+
			`this one, Shop.Buy of process \S+/\d+, holds voucher:1 and waits for stock:1, `+
			`which Shop.Buy of process \S+/\d+ holds; that holds stock:1 and waits for voucher:1, which this one holds; `+
			`take the locks in one order, or together by AcquireAll$`), text)
	})
}

// Other kinds that exclude all others, and a call that takes several locks, are found in deadlocks
// too.
func TestDeadlockOfProcessesByKind(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"write": {Write: true}, "fair": {Fair: true}, "short lease": {TTL: 100 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				victims := ringOf(t, newProcesses(t, 3, memlock.New(), nil), p, 0)
				require.Len(t, victims, 1)
				require.ErrorIs(t, victims[0], lock.ErrDeadlock)
			})
		})
	}
	bubble(t, func(t *testing.T) {
		processes := newProcesses(t, 2, memlock.New(), nil)
		errs := make([]error, 2)
		concurrently(2, func(i int) {
			if i == 0 {
				errs[0] = nestKeys(t, processes[:1], nil, "b", "a")
				return
			}
			time.Sleep(100 * time.Microsecond)
			_, held, err := processes[1].AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Key: "b"})
			errs[1] = err
			held.Release(nil)
		})
		require.True(t, errors.Is(errs[0], lock.ErrDeadlock) != errors.Is(errs[1], lock.ErrDeadlock), errs)
	})
}

// Waits that end by themselves have no victim in any process, however long they last.
func TestNoFalseVictimOfProcesses(t *testing.T) {
	read := &lock.Policy{Read: true}
	for name, run := range map[string]func(t *testing.T, all []*lock.Locker) error{
		"a chain whose last call is slow": func(t *testing.T, all []*lock.Locker) error {
			_, c := acquire(t, t.Context(), all[0], nil, "c")
			time.AfterFunc(10*time.Second, func() { c.Release(nil) })
			go nestKeys(t, all[1:2], nil, "b", "c")
			time.Sleep(100 * time.Microsecond)
			return nestKeys(t, all[2:], nil, "a", "b")
		},
		"the call that holds the key gives up its own wait": func(t *testing.T, all []*lock.Locker) error {
			ctx, b := acquire(t, t.Context(), all[0], nil, "b")
			a, held := acquire(t, t.Context(), all[1], nil, "a")
			defer held.Release(nil)
			first := 50 * time.Millisecond * draw(1) // either call begins to wait before the other
			go func() {
				defer b.Release(nil)
				begin := 50*time.Millisecond - first
				time.Sleep(begin)
				// The note of this call is out. If the call began first, it has seen the other's
				// note. If the other call began second, it looks 550 ms after the first began.
				wait := 520*time.Millisecond + draw(20*time.Millisecond) - begin
				_, _, err := all[0].Acquire(ctx, &lock.Policy{Wait: wait}, "a")
				if !errors.Is(err, lock.ErrNotAcquired) {
					t.Error(err)
				}
				time.Sleep(10 * time.Second) // it continues to hold b
			}()
			time.Sleep(first)
			_, again, err := all[1].Acquire(a, nil, "b")
			again.Release(nil)
			return err
		},
		"readers share": func(t *testing.T, all []*lock.Locker) error {
			reading, r := acquire(t, t.Context(), all[0], read, "r")
			time.AfterFunc(10*time.Second, func() { r.Release(nil) })
			go func() { // waits for m inside r
				_, m, err := all[0].Acquire(reading, nil, "m")
				if err != nil {
					t.Error(err)
				}
				m.Release(nil)
			}()
			ctx, m := acquire(t, t.Context(), all[1], nil, "m")
			defer m.Release(nil)
			time.Sleep(2 * time.Second)
			_, r2, err := all[1].Acquire(ctx, read, "r")
			r2.Release(nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for i := range 4 {
					require.NoError(t, run(t, newProcesses(t, 3, slowNotes{memlock.New(), i%2 == 1}, nil)))
					time.Sleep(20 * time.Second) // the calls in the background end
					synctest.Wait()
				}
			})
		})
	}
}

// staleNotes keeps the first text of each note: an engine may show an old note of a process that
// has moved on.
type staleNotes struct{ *memlock.Backend }

func (s staleNotes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if old, _ := s.Backend.Note(ctx, name); ttl == 0 || old != "" {
		return errors.New("down")
	}
	return s.Backend.PutNote(ctx, name, text, time.Hour)
}

// Old notes make no victim. The note of the other process does not say that it has seen the
// reader's note.
func TestOldNotesMakeNoVictim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 { // either process has the greater ID
			all := newProcesses(t, 2, staleNotes{memlock.New()}, nil)
			ctx, b := acquire(t, t.Context(), all[0], nil, "b")
			blocked, a := acquire(t, t.Context(), all[1], nil, "a")
			_, _, err := all[0].Acquire(ctx, &lock.Policy{Wait: 600 * time.Millisecond}, "a")
			require.ErrorIs(t, err, lock.ErrNotAcquired)
			time.AfterFunc(10*time.Second, func() { b.Release(nil) }) // it continues without a
			_, held, err := all[1].Acquire(blocked, nil, "b")
			require.NoError(t, err)
			held.Release(nil)
			a.Release(nil)
		}
	})
}

// countedNotes counts the notes that are written and read.
type countedNotes struct {
	*memlock.Backend
	puts, reads int // used by one goroutine at a time
}

func (c *countedNotes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	c.puts++
	return c.Backend.PutNote(ctx, name, text, ttl)
}

func (c *countedNotes) Note(ctx context.Context, name string) (string, error) {
	c.reads++
	return c.Backend.Note(ctx, name)
}

// A wait that is short or not nested writes and reads no note. A long wait writes and reads few. No
// note is left.
func TestNotesCostLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &countedNotes{Backend: memlock.New()}
		all := newProcesses(t, 2, b, nil)
		busy := func(d time.Duration) {
			_, k := acquire(t, t.Context(), all[0], nil, "k")
			time.AfterFunc(d, func() { k.Release(nil) })
		}
		busy(time.Minute)
		_, held := acquire(t, t.Context(), all[1], nil, "k")
		held.Release(nil)
		ctx, outer := acquire(t, t.Context(), all[1], nil, "outer")
		busy(290 * time.Millisecond)
		_, held = acquire(t, ctx, all[1], nil, "k")
		held.Release(nil)
		require.Zero(t, b.puts+b.reads)

		for _, shared := range []*lock.Policy{{Read: true}, {Permits: 2}} {
			inside, several := acquire(t, t.Context(), all[1], shared, "several may be inside")
			busy(2 * time.Second)
			_, held = acquire(t, inside, all[1], nil, "k")
			held.Release(nil)
			several.Release(nil)
			require.Zero(t, b.puts+b.reads)
			time.Sleep(time.Hour) // the record of the other kind has expired
		}

		busy(10 * time.Second)
		time.AfterFunc(5*time.Second, func() {
			note, err := b.Backend.Note(t.Context(), "wait/outer")
			if err != nil || note == "" {
				t.Errorf("the note is %q, %v", note, err)
			}
		})
		_, held = acquire(t, ctx, all[1], nil, "k")
		synctest.Wait()
		note, err := b.Backend.Note(t.Context(), "wait/outer")
		require.NoError(t, err)
		require.Empty(t, note)
		require.InDelta(t, 10, b.puts, 3)
		require.InDelta(t, 48, b.reads, 3)
		held.Release(nil)
		outer.Release(nil)
	})
}

// A call may hold more locks than it writes notes for: it writes them for the outermost.
func TestDeadlockBeyondManyLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ls, errs := newProcesses(t, 2, memlock.New(), nil), make([]error, 2)
		keys := []string{}
		for i := range 20 {
			keys = append(keys, fmt.Sprintf("k%02d", i))
		}
		wants := [][]string{keys, {"x"}}
		concurrently(2, func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			errs[i] = ls[i].Do(ctx, nil, []string{"x", "k19"}[i], func(ctx context.Context) error {
				time.Sleep(100 * time.Millisecond)
				_, held, err := ls[i].AcquireAll(ctx, lock.Requests(nil, wants[i])...)
				held.Release(nil)
				return err
			})
		})
		require.Condition(t, func() bool { return (errs[0] == nil) != (errs[1] == nil) }, "%v", errs)
		require.ErrorIs(t, errors.Join(errs...), lock.ErrDeadlock)
	})
}
