package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/lagmeter"
)

// wakeLimit is the limit for the median time from a release to the entry of the
// other side.
const wakeLimit = 100 * time.Millisecond

// pair is the established client of an engine and lockgen.
type pair struct {
	peer     string // its name in the table at the end
	theirs   client
	ours     client
	sections int    // fewer if each section needs a new process, which takes long
	refused  string // the part of the encoded value that the engine's interface does not allow
}

// test runs the checks of every pair, with a plain value and with one that needs much
// encoding in the key.
func (p *pair) test(t *testing.T) {
	run := strconv.Itoa(os.Getpid()) // servers may be shared with another run
	names := map[string]string{
		"plain":   "p" + run,
		"encoded": strings.ReplaceAll("user:"+run+"@example.org/50% é", p.refused, ""),
	}
	for _, kind := range []string{"plain", "encoded"} {
		sections := p.sections
		if most, err := strconv.Atoi(os.Getenv("LOCKGEN_INTEROP_SECTIONS")); err == nil {
			sections = min(sections, most)
		}
		if kind == "encoded" {
			sections = max(p.sections/10, 20) // enough for a median
		}
		t.Run(kind, func(t *testing.T) {
			t.Run("exclude", func(t *testing.T) { p.exclude(t, names[kind]) })
			t.Run("alternate", func(t *testing.T) { p.alternate(t, kind, names[kind], sections) })
			t.Run("compete", func(t *testing.T) { p.compete(t, names[kind], sections/10+1) })
		})
	}
}

// outlast checks that holder keeps the lock for longer than its lease, while other tries to get it.
func (p *pair) outlast(t *testing.T, holder, other client, long time.Duration) {
	const name = "outlast"
	require.NoError(t, holder.lock(t.Context(), name))
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		in, err := other.try(t.Context(), name)
		require.NoError(t, err)
		require.False(t, in, "%T got the lock while %T renews its lease", other, holder)
	}
	require.NoError(t, holder.unlock(t.Context()))
}

// exclude checks that neither client gets a lock that the other holds, and that each gets it after the release.
func (p *pair) exclude(t *testing.T, name string) {
	for _, order := range [][2]client{{p.theirs, p.ours}, {p.ours, p.theirs}, {p.theirs, p.ours}} {
		holder, other := order[0], order[1]
		require.NoError(t, holder.lock(t.Context(), name))
		in, err := other.try(t.Context(), name)
		require.NoError(t, err)
		require.False(t, in, "%T got the lock that %T holds", other, holder)
		require.NoError(t, holder.unlock(t.Context()))

		in, err = other.try(t.Context(), name)
		require.NoError(t, err)
		require.True(t, in, "%T does not get the lock that %T has released", other, holder)
		require.NoError(t, other.unlock(t.Context()))
	}
}

// counter is a number in a file. A holder reads it at the beginning of its section and
// writes it at the end, so if two are inside at once, a count is lost.
type counter string

func newCounter(t *testing.T) counter {
	c := counter(filepath.Join(t.TempDir(), "counter"))
	require.NoError(t, c.write(0))
	return c
}

func (c counter) read() (int, error) {
	text, err := os.ReadFile(string(c))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (c counter) write(n int) error { return os.WriteFile(string(c), []byte(strconv.Itoa(n)), 0o600) }

// visit is one pass of a client through the section.
type visit struct {
	client  client
	entered chan struct{} // closed when the next three are set
	at      time.Time
	count   int
	err     error
}

func (p *pair) begin(t *testing.T, c client, name string, number counter) *visit {
	v := &visit{client: c, entered: make(chan struct{})}
	go func() {
		defer close(v.entered)
		v.err = c.lock(t.Context(), name)
		v.at = time.Now()
		if v.err == nil {
			v.count, v.err = number.read()
		}
	}()
	return v
}

func (v *visit) inside() bool {
	select {
	case <-v.entered:
		return true
	default:
		return false
	}
}

// end writes the counter and releases the lock.
func (v *visit) end(t *testing.T, number counter) (released time.Time) {
	require.NoError(t, number.write(v.count+1))
	released = time.Now()
	require.NoError(t, v.client.unlock(t.Context()))
	return released
}

// alternate has the two clients enter in turn: one stays inside until the other waits, and
// then releases the lock.
func (p *pair) alternate(t *testing.T, kind, name string, sections int) {
	number := newCounter(t)
	meter := lagmeter.Start()
	defer meter.Stop()
	wakes := map[client][]time.Duration{}
	blamed := map[client][]time.Duration{} // wakes minus the lateness of the machine
	sides := [2]client{p.theirs, p.ours}
	current := p.begin(t, sides[0], name, number)
	for i := 1; i <= sections; i++ {
		<-current.entered
		require.NoError(t, current.err)
		if i == sections {
			current.end(t, number)
			break
		}
		next := p.begin(t, sides[i%2], name, number)
		await(t, fmt.Sprintf("%T waits", next.client), func() (bool, error) {
			if next.inside() {
				return false, fmt.Errorf("it is inside together with %T: %v", current.client, next.err)
			}
			return next.client.waits(t.Context(), name)
		})
		released := current.end(t, number)
		<-next.entered
		took := max(0, next.at.Sub(released))
		wakes[next.client] = append(wakes[next.client], took)
		blamed[next.client] = append(blamed[next.client], took-meter.Since(released))
		current = next
	}
	got, err := number.read()
	require.NoError(t, err)
	require.Equal(t, sections, got, "counts are missing: two were inside at once")

	figures.add(p.peer, kind, sections, median(wakes[p.ours]), median(wakes[p.theirs]))
	us, them := median(blamed[p.ours]), median(blamed[p.theirs])
	require.Less(t, us, wakeLimit, "median time from their release to our entry, of %d", len(wakes[p.ours]))
	require.Less(t, them, wakeLimit, "median time from our release to their entry, of %d", len(wakes[p.theirs]))
}

// compete has the two clients enter each times each, without an order.
func (p *pair) compete(t *testing.T, name string, each int) {
	number := newCounter(t)
	var inside atomic.Int64
	once := func(c client) error {
		if err := c.lock(t.Context(), name); err != nil {
			return err
		}
		if n := inside.Add(1); n != 1 {
			return fmt.Errorf("%d holders are inside", n)
		}
		n, err := number.read()
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		if err := number.write(n + 1); err != nil {
			return err
		}
		inside.Add(-1)
		return c.unlock(t.Context())
	}
	var sides sync.WaitGroup
	errs := make([]error, 2)
	for i, c := range []client{p.theirs, p.ours} {
		sides.Go(func() {
			for range each {
				if errs[i] = once(c); errs[i] != nil {
					return
				}
			}
		})
	}
	sides.Wait()
	require.NoError(t, errs[0], "the established client")
	require.NoError(t, errs[1], "lockgen")
	got, err := number.read()
	require.NoError(t, err)
	require.Equal(t, 2*each, got, "counts are missing: two were inside at once")
}
