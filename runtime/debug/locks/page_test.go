package locks_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/debug/locks"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var buy = &lock.Policy{Method: "Shop.Buy", Pattern: "shop:<id>", TTL: 10 * time.Second}

// watched returns a Locker on an engine, and the Monitor that watches it.
func watched(t *testing.T) (*locktest.Engine, *lock.Locker, *locks.Monitor) {
	m := locks.New(nil)
	e := locktest.New(t)
	l := e.Locker(&lock.Options{Observer: m})
	t.Cleanup(m.Watch(l))
	return e, l, m
}

// get returns the page at query, tags taken out and spaces made one.
func get(t *testing.T, m http.Handler, query string) string {
	t.Helper()
	return plain(body(t, m, query))
}

func body(t *testing.T, m http.Handler, query string) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/debug/locks/"+query, nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

var (
	scripts = regexp.MustCompile(`(?s)<(script|style).*?</(script|style)>`)
	tags    = regexp.MustCompile(`<[^>]*>`)
	spaces  = regexp.MustCompile(`\s+`)
)

func plain(html string) string {
	return spaces.ReplaceAllString(tags.ReplaceAllString(scripts.ReplaceAllString(html, ""), " "), " ")
}

// hold takes key until the test or bubble calls release.
func hold(t *testing.T, l *lock.Locker, p *lock.Policy, key string) (release func()) {
	t.Helper()
	_, held, err := l.Acquire(t.Context(), p, key)
	require.NoError(t, err)
	return func() { held.Release(nil) }
}

// queue has n calls wait for key. stop ends them.
func queue(t *testing.T, l *lock.Locker, p *lock.Policy, key string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			_, _, err := l.Acquire(ctx, p, key)
			if !errors.Is(err, lock.ErrNotAcquired) {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	return func() {
		cancel()
		calls.Wait()
	}
}

func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m := watched(t)
		require.Contains(t, get(t, m, ""), "No lock has been asked for yet. Keys Nothing is held or waited for. Events No lock was lost")
		time.Sleep(time.Second)

		release := hold(t, l, buy, "shop:1")
		stop := queue(t, l, buy, "shop:1", 3)
		time.Sleep(1500 * time.Millisecond)
		text := get(t, m, "")
		require.Contains(t, text, "held 1 waiting 3 going on in the background 0")
		require.Contains(t, text, "shop:&lt;id&gt; Shop.Buy 1 3 0 1.5 s 0 µs 0 µs – 1 0 0 0")
		require.Contains(t, text, "shop:1 Shop.Buy 1 1.5 s 8.4 s 3 1.5 s")

		time.Sleep(time.Second)
		stop()
		release()
		text = get(t, m, "")
		require.Contains(t, text, "held 0 waiting 0")
		require.Contains(t, text, "shop:&lt;id&gt; Shop.Buy 0 0 0 – 2.6 s 2.6 s 2.6 s 1 3 0 0")

		time.Sleep(2 * time.Minute)
		require.Contains(t, get(t, m, ""), "shop:&lt;id&gt; Shop.Buy 0 0 0 – – – – 1 3 0 0", "percentiles are of the last minute")
	})
}

func TestPageOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m := watched(t)
		const key = `<b>&"shop"` // which is text wherever it stands
		defer hold(t, l, buy, key)()
		defer queue(t, l, buy, key, 60)()
		defer hold(t, l, buy, "another")()
		time.Sleep(time.Second)

		home := body(t, m, "")
		require.NotContains(t, home, "<b>")
		link := regexp.MustCompile(`href="(\?key=[^"]*shop[^"]*)"`).FindStringSubmatch(home)
		require.NotNil(t, link)
		page := body(t, m, link[1])
		text := plain(page)
		require.Contains(t, text, "Key &lt;b&gt;&amp;&#34;shop&#34; held by")
		require.Regexp(t, `Shop.Buy mutex shop:&lt;id&gt; \d+ 1.0 s 8.9 s of 10.0 s Queue`, text)
		require.Contains(t, page, `<progress max="10.00" value="8.90"></progress>`)
		require.Contains(t, text, "1 Shop.Buy mutex in this process 1.0 s")
		require.Contains(t, text, "50 Shop.Buy mutex in this process 1.0 s 1 to 50 of 60 next")
		require.NotContains(t, text, "another")

		require.Contains(t, get(t, m, link[1]+"&queue=1"), "60 Shop.Buy mutex in this process 1.0 s 51 to 60 of 60 before")
		require.Contains(t, get(t, m, link[1]+"&queue=99"), "51 to 60 of 60", "a page that is gone is the last")
		require.Contains(t, get(t, m, "?key=nobody"), "This process neither holds it nor waits for it.")
	})
}

func TestWhoWaitsAtTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, m := watched(t)
		e.HeldByOther("shop:1")
		defer queue(t, l, buy, "shop:1", 2)()
		time.Sleep(time.Second)
		require.Contains(t, get(t, m, ""), "shop:1 not this process 0 – – 2 1.0 s")
		text := get(t, m, "?key=shop:1")
		require.Contains(t, text, "Another process holds it")
		require.Contains(t, text, "1 Shop.Buy mutex at the engine 1.0 s 2 Shop.Buy mutex in this process 1.0 s")
	})
}

func TestListsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m := watched(t)
		for i := range 120 {
			p := &lock.Policy{Method: fmt.Sprintf("Shop.Buy%03d", i), Pattern: "shop:<id>"}
			defer hold(t, l, p, fmt.Sprintf("shop:%03d", i))()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		text := get(t, m, "?patterns=1&keys=2")
		require.Contains(t, text, "51 to 100 of 120 before next Keys")
		require.Contains(t, text, "101 to 120 of 120 before Events")
		require.Contains(t, text, "Shop.Buy050 1 0")
		require.NotContains(t, text, "Shop.Buy049")
		require.Contains(t, text, "shop:119 Shop.Buy119")
		require.Contains(t, body(t, m, "?patterns=1&keys=2"), `href="?keys=1&amp;patterns=1"`)
		require.Contains(t, get(t, m, "?patterns=minus"), "1 to 50 of 120")
	})
}

// Patterns that are made at run time, one for each key, must not fill the memory.
func TestPatternsAreBounded(t *testing.T) {
	m := locks.New(nil)
	for i := range 1100 {
		m.Observe(t.Context(), lock.Event{Kind: lock.Acquired, Policy: &lock.Policy{Pattern: fmt.Sprint("shop:", i)}})
	}
	text := get(t, m, "?patterns=20")
	require.Contains(t, text, "1001 to 1001 of 1001")
	require.Contains(t, get(t, m, "?patterns=0"), "(all others) 0 0 0 – 0 µs 0 µs – 100 0 0 0")
	require.Contains(t, text, "call Monitor.Watch")
}

func TestWhatWentWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l, m := watched(t)
		_, held, err := l.Acquire(t.Context(), buy, "shop:1")
		require.NoError(t, err)
		e.Fail(errors.New("no route to <host>"))
		time.Sleep(5 * time.Second)
		text := get(t, m, "")
		require.Contains(t, text, "No lease at the Locker's own backend can be renewed, for 1.")
		require.Contains(t, text, "outage began no route to &lt;host&gt;")
		time.Sleep(6 * time.Second)
		held.Release(&err)
		require.ErrorIs(t, err, lock.ErrLost)
		text = get(t, m, "")
		require.Regexp(t, `lost shop:1 Shop.Buy lock: hold shop:1 \(Shop.Buy\)`, text)
		require.Contains(t, text, "Shop.Buy 0 0 1 – 0 µs 0 µs 10.5 s 1 0 0 0")
	})
}

// Orders that contradict each other are shown with their stacks, and with what goes on now.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, m := watched(t)
		policy := map[string]*lock.Policy{"a": {Pattern: "a:<id>"}, "b": {Pattern: "b:<id>"}}
		nest := func(outer, inner string) func() {
			ctx, first, err := l.Acquire(t.Context(), policy[outer], outer)
			require.NoError(t, err)
			_, second, err := l.Acquire(ctx, policy[inner], inner)
			require.NoError(t, err)
			return func() { second.Release(nil); first.Release(nil) }
		}
		require.NotContains(t, get(t, m, ""), "inside of others")
		nest("a", "b")()
		time.Sleep(time.Second)
		require.Contains(t, get(t, m, ""), "a:&lt;id&gt; 0 b:&lt;id&gt; 0 1 – Events")
		defer nest("b", "a")()
		defer queue(t, l, policy["b"], "b", 2)()
		time.Sleep(time.Second)
		text := get(t, m, "")
		require.Contains(t, text, "a:&lt;id&gt; 1 b:&lt;id&gt; 2 1 contradicts others b:&lt;id&gt; 1 a:&lt;id&gt; 0 1 contradicts others")
		require.Contains(t, text, "a:&lt;id&gt; 1 held, 0 waiting b:&lt;id&gt; 1 held, 2 waiting", "in the drawing")
		require.Regexp(t, `order cycle a locks are taken in orders that contradict each other.*locks_test.TestOrders`, text)
	})
}

func TestStream(t *testing.T) {
	_, l, m := watched(t)
	server := httptest.NewServer(m)
	defer server.Close()
	answer, err := server.Client().Get(server.URL + "/?events")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	until := func(text string) (seen string) {
		for lines.Scan() {
			seen += lines.Text() + "\n"
			if strings.Contains(lines.Text(), text) {
				return seen
			}
		}
		t.Fatalf("the stream ended before %q: %s", text, seen)
		return ""
	}
	first := until("No lock was lost")
	for _, id := range []string{"overview", "patterns", "keys", "happened"} {
		require.Contains(t, first, "event: "+id+"\ndata: ")
	}
	defer hold(t, l, buy, "shop:1")()
	next := until("?key=shop%3A1")
	require.Contains(t, next, `<dd id="holds">1</dd>`)
	require.NotContains(t, next, "event: happened", "what has not changed is not sent")
}

func TestRefusesOtherMethods(t *testing.T) {
	w := httptest.NewRecorder()
	locks.New(nil).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}

// The page loads nothing, and scripts that a key might bring don't run.
func TestNothingFromOutside(t *testing.T) {
	w := httptest.NewRecorder()
	locks.New(nil).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	page := w.Body.String()
	require.NotRegexp(t, `(src|href)="?(https?:|//)`, page)
	require.NotContains(t, page, " style=")
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	nonce := regexp.MustCompile(`script-src 'nonce-(\w+)'`).FindStringSubmatch(policy)
	require.NotNil(t, nonce)
	require.Contains(t, page, `<script nonce="`+nonce[1]+`">`)
	require.Contains(t, page, `<style nonce="`+nonce[1]+`">`)
}

// Observers behind the Monitor hear all, and give methods their context.
func TestNext(t *testing.T) {
	type key struct{}
	next := &recorder{key: key{}}
	l := locktest.New(t).Locker(&lock.Options{Observer: locks.New(&locks.Options{Next: next})})
	ctx, held, err := l.Acquire(t.Context(), buy, "shop:1")
	require.NoError(t, err)
	require.Equal(t, "shop:1", ctx.Value(key{}))
	held.Release(nil)
	require.Equal(t, []lock.EventKind{lock.Acquired, lock.Released}, next.kinds)
}

type recorder struct {
	key   any
	kinds []lock.EventKind
}

func (r *recorder) Observe(_ context.Context, e lock.Event) { r.kinds = append(r.kinds, e.Kind) }

func (r *recorder) BeginHold(ctx context.Context, e lock.Event) context.Context {
	return context.WithValue(ctx, r.key, e.Key)
}
