package browsertest

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// nest takes locks of these patterns inside of each other, and keeps them until the test ends.
func nest(t *testing.T, l *lock.Locker, key string, patterns ...string) {
	t.Helper()
	ctx := t.Context()
	for _, pattern := range patterns {
		inner, held, err := l.Acquire(ctx, &lock.Policy{Method: "Shop.Order", Pattern: pattern, TTL: time.Minute}, pattern+key)
		require.NoError(t, err)
		t.Cleanup(func() { held.Release(nil) })
		ctx = inner
	}
}

// TestGraph looks at the drawing of the orders, in both colours.
func TestGraph(t *testing.T) {
	l, page := serve(t)
	nest(t, l, "1", "account:<from>", "account:<to>", "ledger:<day>")
	nest(t, l, "2", "order:<id>", "stock:<warehouse>:<sku>")
	nest(t, l, "3", "order:<id>", "account:<from>")
	nest(t, l, "4", "stock:<warehouse>:<sku>", "order:<id>") // the other way round
	ctx := browse(t)
	for scheme, ground := range map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"} {
		var got, bad string
		var nodes, inside int
		require.NoError(t, chromedp.Run(ctx, colours(scheme), chromedp.Navigate(page), waitText("#state", "live"),
			waitText("#orders svg", "3 held, 0 waiting"),
			chromedp.Evaluate(`getComputedStyle(document.querySelector("#orders svg rect")).fill`, &got),
			chromedp.Evaluate(`getComputedStyle(document.querySelector("#orders svg path[marker-end='url(#bad)']")).stroke`, &bad),
			chromedp.Evaluate(`document.querySelectorAll("#orders svg g rect").length`, &nodes),
			chromedp.Evaluate(`[...document.querySelectorAll("#orders svg g rect")].filter(r => { const b = r.getBoundingClientRect(), s = r.closest("svg").getBoundingClientRect(); return b.left >= s.left && b.right <= s.right && b.bottom <= s.bottom }).length`, &inside),
			chromedp.ScrollIntoView("#orders")))
		require.Equal(t, ground, got)
		require.Equal(t, map[string]string{"light": "rgb(179, 38, 30)", "dark": "rgb(255, 138, 128)"}[scheme], bad)
		require.Equal(t, 5, nodes)
		require.Equal(t, nodes, inside, "a node lies outside of the picture")
		shot(t, ctx, "graph-"+scheme)
	}
}
