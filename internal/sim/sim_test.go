package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockgen/lockgen/internal/sim/goruntime"
	"github.com/lockgen/lockgen/internal/sim/launch"
)

// TestEpisodes runs the episodes that its environment asks for, if package launch has started it. Otherwise
// it runs a short form: it builds the simulation and runs some seeds.
func TestEpisodes(t *testing.T) {
	order := os.Getenv(launch.Env)
	if order == "" {
		playShort(t)
		return
	}
	var o Options
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		t.Fatal(err)
	}
	o.Out = launch.Output()
	if s := Run(t, o); s.Violations > 0 {
		t.Error("violations")
	}
}

// playShort runs 70 seeds, and 20 of them again in separate programs, because an
// episode must depend only on its seed. Then it runs some seeds that have found a mistake.
func playShort(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "sim")
	if err := launch.Build(".", binary, os.Stderr); err != nil {
		t.Fatal(err)
	}
	all := play(t, binary, Options{First: 1, Count: 70})
	again := append(play(t, binary, Options{First: 11, Count: 10}), play(t, binary, Options{First: 1, Count: 10})...)
	if len(all) != 70 || len(again) != 20 {
		t.Fatalf("%d and %d episodes, not 70 and 20", len(all), len(again))
	}
	_, err := goruntime.Overlay(t.TempDir())
	for i, line := range again {
		if first := all[(i+10)%20]; err == nil && line != first {
			t.Errorf("a repeated episode differs:\n%s\n%s", first, line)
		}
	}
	play(t, binary, Options{First: 1, Count: 10, Choice: Choice{Engine: "redis", Sticky: true}})
	for _, found := range []struct {
		seed   uint64
		choice Choice
	}{
		{183, Choice{Engine: "redis", Sticky: true}}, // a renewal that had to open a connection
		{490, Choice{Engine: "redis", Sticky: true}}, // a grant whose tokens fell
		{703, Choice{Engine: "row"}},                 // a Close that left a lock behind
		{1012, Choice{Engine: "locktest"}},
		{2061, Choice{Engine: "zookeeper"}},
		{44713, Choice{Engine: "row"}}, // an undo that kept its tokens
		{20044, Choice{Engine: "quorum"}},
		{231, Choice{Engine: "quorum"}}, // a message of a grant that had been returned
		{239, Choice{Engine: "quorum"}}, // a lease that was returned because a majority had forgotten it
		{20012, Choice{Engine: "sharded"}},
	} {
		play(t, binary, Options{First: found.seed, Count: 1, Choice: found.choice})
	}
	for _, engine := range []string{"quorum", "failover", "sharded"} {
		play(t, binary, Options{First: 1, Count: 3, Choice: Choice{Engine: engine}})
	}
}

// play returns the lines of the episodes and prints the summary.
func play(t *testing.T, binary string, o Options) (episodes []string) {
	t.Helper()
	order, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	passed, err := launch.Run(binary, "TestEpisodes", string(order), &out)
	if err != nil {
		t.Fatal(err)
	}
	if !passed {
		t.Error(out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "seed ") {
			episodes = append(episodes, line)
		} else if strings.Contains(line, " episodes, ") {
			fmt.Print(line)
		}
	}
	return episodes
}
