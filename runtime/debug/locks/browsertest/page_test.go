package browsertest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/debug/locks"
)

const (
	firstPaint = 200 * time.Millisecond
	screens    = "LOCKGEN_SCREENSHOTS" // names a folder to write screenshots to
)

// browse starts a browser and returns the context of its first tab.
func browse(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	require.NotEmpty(t, program, "no chromium in PATH: make browser installs it")
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 800),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), opts...) // it ends after the clean-ups
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Run(tab)) // the browser is tab's, and outlives the ctx of the test
	t.Cleanup(func() {
		// Closed, and not killed: else its processes still write while TempDir removes its folder.
		closing, cancel := context.WithTimeout(tab, 20*time.Second)
		defer cancel()
		if err := chromedp.Cancel(closing); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// serve returns a Locker and the address of its page.
func serve(t *testing.T) (*lock.Locker, string) {
	m := locks.New(nil)
	l := lock.New(memlock.New(), &lock.Options{Observer: m})
	stop := m.Watch(l)
	server := httptest.NewServer(m)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l, server.URL + "/debug/locks/"
}

var methods = []*lock.Policy{
	{Method: "SeckillService.CreateVoucherOrder", Pattern: "seckill:voucher:<id>", TTL: time.Minute},
	{Method: "Stock.Reserve", Pattern: "stock:<warehouse>:<sku>", TTL: 30 * time.Second},
	{Method: "Accounts.Transfer", Pattern: "account:<from>", TTL: 10 * time.Second},
	{Method: "Reports.Nightly", Pattern: "report:nightly", TTL: 5 * time.Minute},
}

// fill has l hold so many locks, and so many calls wait.
func fill(t *testing.T, l *lock.Locker, holds, waiters int) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		calls.Wait()
	})
	key := func(i int) string { return fmt.Sprintf("seckill:voucher:%d", i) }
	for i := range holds {
		_, held, err := l.Acquire(ctx, methods[i%len(methods)], key(i))
		require.NoError(t, err)
		t.Cleanup(func() { held.Release(nil) })
	}
	for i := range waiters {
		calls.Go(func() {
			k := i % max(waiters/40, 1)
			_, held, err := l.Acquire(ctx, methods[k%len(methods)], key(k))
			if err == nil {
				held.Release(nil)
			}
		})
	}
	require.Eventually(t, func() bool { return len(l.Snapshot().Waiters) == waiters }, time.Minute, time.Millisecond)
}

// shot writes a screenshot if asked to.
func shot(t *testing.T, ctx context.Context, name string) {
	folder := os.Getenv(screens)
	if folder == "" {
		return
	}
	var png []byte
	require.NoError(t, chromedp.Run(ctx, chromedp.CaptureScreenshot(&png)))
	require.NoError(t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o666))
}

func colours(scheme string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
}

// TestLive follows a lock from the list of keys to its page, without loading anything anew.
func TestLive(t *testing.T) {
	l, page := serve(t)
	ctx := browse(t)
	var asked []string
	var mu sync.Mutex
	chromedp.ListenTarget(ctx, func(event any) {
		if sent, ok := event.(*network.EventRequestWillBeSent); ok {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, sent.Request.URL)
		}
	})
	require.NoError(t, chromedp.Run(ctx, network.Enable(), chromedp.Navigate(page), waitText("#state", "live"), waitText("#holds", "0")))
	_, held, err := l.Acquire(t.Context(), methods[0], "seckill:voucher:42")
	require.NoError(t, err)
	require.NoError(t, chromedp.Run(ctx, waitText("#holds", "1"), follow(page), waitText("#state", "live"), waitText("#key", "lease left")))
	held.Release(nil)
	require.NoError(t, chromedp.Run(ctx, waitText("#key", "This process neither holds it")))
	mu.Lock()
	defer mu.Unlock()
	for _, url := range asked {
		require.Contains(t, url, page, "the page asks for something else")
	}
}

// waitText waits until the element holds text.
func waitText(selector, text string) chromedp.Action {
	return chromedp.Poll(fmt.Sprintf(`(document.querySelector(%q)?.textContent ?? "").includes(%q)`, selector, text), nil, chromedp.WithPollingInterval(20*time.Millisecond))
}

// follow goes where the first key's link leads.
func follow(page string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var link string
		if err := chromedp.Evaluate(`document.querySelector("#keys a").getAttribute("href")`, &link).Do(ctx); err != nil {
			return err
		}
		return chromedp.Navigate(page + link).Do(ctx)
	})
}

// TestWithoutScript has the table without JavaScript.
func TestWithoutScript(t *testing.T) {
	l, page := serve(t)
	fill(t, l, 3, 2)
	ctx := browse(t)
	var text string
	require.NoError(t, chromedp.Run(ctx, emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(page), chromedp.Text("body", &text)))
	require.Contains(t, text, "as of when it was loaded")
	require.Contains(t, text, "seckill:voucher:<id>")
	shot(t, ctx, "without-script")
}

// TestColours compares the page's ground under both schemes.
func TestColours(t *testing.T) {
	l, page := serve(t)
	fill(t, l, 40, 60)
	ctx := browse(t)
	for scheme, ground := range map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"} {
		var got string
		require.NoError(t, chromedp.Run(ctx, colours(scheme), chromedp.Navigate(page), waitText("#state", "live"),
			chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &got)))
		require.Equal(t, ground, got)
		shot(t, ctx, scheme)
		require.NoError(t, chromedp.Run(ctx, follow(page), waitText("#state", "live")))
		shot(t, ctx, scheme+"-key")
	}
}

// TestUnderLoad bounds the first paint, and what an open page costs.
func TestUnderLoad(t *testing.T) {
	l, page := serve(t)
	fill(t, l, 10_000, 1_000)
	ctx := browse(t)
	require.NoError(t, chromedp.Run(ctx, chromedp.Navigate(page), waitText("#state", "live"))) // the browser itself is warm
	var best float64
	for i := range 5 {
		var ms float64
		require.NoError(t, chromedp.Run(ctx, chromedp.Navigate(page), waitText("#state", "live"),
			chromedp.Poll(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime`, &ms)))
		if i == 0 || ms < best {
			best = ms
		}
		t.Logf("first paint after %.0f ms", ms)
	}
	require.Less(t, best, float64(firstPaint.Milliseconds()))
	var size int
	require.NoError(t, chromedp.Run(ctx, chromedp.Evaluate(`document.documentElement.outerHTML.length`, &size)))
	require.Less(t, size, 100<<10)
	shot(t, ctx, "load")

	const watched = 5 * time.Second
	before := cpu()
	time.Sleep(watched)
	share := (cpu() - before).Seconds() / watched.Seconds()
	t.Logf("page of %d KB; an open page costs this process %.2f %% of a core", size>>10, 100*share)
	require.Less(t, share, 0.05)
}
