package otellock_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// panel is the part of a Grafana panel that the test reads.
type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// exported returns each metric that Prometheus sees, with its labels.
func exported(t *testing.T) map[string]string {
	o, page := newPage(t)
	l := locktest.New(t).Locker(nil)
	_, err := o.Watch(l)
	require.NoError(t, err)
	_, held, err := l.Acquire(t.Context(), buy, "shop:1")
	require.NoError(t, err)
	t.Cleanup(func() { held.Release(nil) })
	for kind := lock.Acquired; kind <= lock.OutageBegan; kind++ {
		o.Observe(t.Context(), lock.Event{Kind: kind, Policy: buy, Err: lock.ErrUnavailable})
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		_, second, err := l.Acquire(t.Context(), buy, "shop:1")
		if err == nil {
			second.Release(nil)
		}
	}()
	require.Eventually(t, func() bool { return len(l.Snapshot().Waiters) > 0 }, time.Minute, time.Millisecond)
	t.Cleanup(func() { <-all })

	metrics := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^(lockgen_\w+)\{(.*)\} `).FindAllStringSubmatch(page(), -1) {
		metrics[found[1]] += found[2]
	}
	return metrics
}

var metricNames = regexp.MustCompile(`lockgen_\w+`)

// requireKnown requires that each metric of expr is exported and has the labels of expr.
func requireKnown(t *testing.T, metrics map[string]string, expr string) {
	t.Helper()
	var labels []string
	found := false
	for _, name := range metricNames.FindAllString(expr, -1) {
		if _, ok := metrics[name]; ok {
			found = true
			continue
		}
		labels = append(labels, name)
	}
	require.True(t, found, "no metric is exported of %s: there are %v", expr, slices.Sorted(maps.Keys(metrics)))
	for _, label := range labels {
		require.True(t, slices.ContainsFunc(metricNames.FindAllString(expr, -1), func(name string) bool {
			return strings.Contains(metrics[name], label+"=")
		}), "%s: %s is neither a metric nor a label", expr, label)
	}
}

// TestDashboard checks that the panels use only exported metrics and labels, and that they have the fields
// without which Grafana does not show them.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var board struct {
		UID, Title    string
		SchemaVersion int
		Panels        []panel
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.UID)
	require.NotZero(t, board.SchemaVersion)
	metrics, ids, used := exported(t), map[int]bool{}, ""
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], "two panels have the ID %d", p.ID)
		ids[p.ID] = true
		require.Contains(t, []string{"stat", "timeseries"}, p.Type)
		require.NotEmpty(t, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			requireKnown(t, metrics, target.Expr)
			used += target.Expr
		}
	}
	for name := range metrics {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		require.Contains(t, used, base, "no panel shows it")
	}
}

// TestAlerts checks the rules with Prometheus's own tool.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	metrics := exported(t)
	rules := regexp.MustCompile(`(?m)^        expr: (?:>-\n)?((?:.*\n)(?:          .*\n)*)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rules, strings.Count(string(text), "- alert:"))
	for _, rule := range rules {
		requireKnown(t, metrics, rule[1])
	}
	promtool(t, "check", "rules", "alerts.yaml")
}

// TestAlertsFire checks that each rule fires when it should, and only then.
func TestAlertsFire(t *testing.T) {
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	cases, err := os.ReadFile("testdata/alerts.yaml")
	require.NoError(t, err)
	for _, rule := range regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1) {
		of := regexp.MustCompile(`alertname: `+rule[1]+`\b(?:, exp_alerts: \[\])?`).FindAllString(string(cases), -1)
		require.True(t, slices.ContainsFunc(of, func(s string) bool { return strings.HasSuffix(s, "[]") }), "%s is never silent", rule[1])
		require.True(t, slices.ContainsFunc(of, func(s string) bool { return !strings.HasSuffix(s, "[]") }), "%s never fires", rule[1])
	}
	promtool(t, "test", "rules", "testdata/alerts.yaml")
}

// promtool runs Prometheus's own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("promtool is not installed: run scripts/install-servers promtool")
		}
		t.Skip("promtool is not installed: run scripts/install-servers promtool")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}
