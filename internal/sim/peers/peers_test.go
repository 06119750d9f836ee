package peers

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockgen/lockgen/internal/sim/launch"
)

// TestEpisodes does what its environment asks for, as package launch runs it. Without
// that it is the short form: it builds the simulation, and plays some seeds with each
// library.
func TestEpisodes(t *testing.T) {
	text := os.Getenv(launch.Env)
	if text == "" {
		playShort(t)
		return
	}
	var o Order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	o.do(t, launch.Output())
}

// known are faults of the other libraries that one episode in eight shows at least: if
// some 30 seeds don't, the simulation is blind. What each is stands in doc.go, with the
// rarer ones.
var known = map[string][]Oracle{
	"redsync":     {Stale, Late, Polling, WrongError},
	"redislock":   {Stale, Late, Polling},
	"rueidislock": {Stale, Late, ToldLate},
}

func playShort(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "peers")
	if err := launch.Build(".", binary, os.Stderr); err != nil {
		t.Fatal(err)
	}
	order := Order{First: 1, Count: 30}
	for _, p := range All {
		order.Peers = append(order.Peers, p.Name())
	}
	rows := launched(t, binary, order)
	if err := Table(os.Stdout, rows); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		judge(t, &rows[i])
	}
	checkOracles(t, binary)
	checkRepeats(t, binary, rows)
}

func launched(t *testing.T, binary string, o Order) []Row {
	t.Helper()
	rows, err := Launch(binary, o, os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(o.Peers) {
		t.Fatalf("%d rows of %d libraries", len(rows), len(o.Peers))
	}
	return rows
}

// judge checks that ours breaks nothing, and that the others break what is known.
func judge(t *testing.T, row *Row) {
	broken := row.Broken()
	if row.Peer == Ours {
		for _, o := range broken {
			t.Errorf("%s: seed %d: %s", row.Peer, row.Cells[o].Seed, row.Cells[o].Finding)
		}
		return
	}
	for _, o := range known[row.Peer] {
		if !slices.Contains(broken, o) {
			t.Errorf("%s: no %v found in %d episodes", row.Peer, o, row.Episodes)
		}
	}
}

// checkOracles checks that each oracle sees what it is for.
func checkOracles(t *testing.T, binary string) {
	row := launched(t, binary, Order{Peers: []string{Naive.Name()}, First: 1, Count: 60})[0]
	for _, o := range Oracles() {
		if row.Cells[o].Findings == 0 {
			t.Errorf("%v is not found in the lock that has all mistakes", o)
		}
	}
}

// checkRepeats plays some of the seeds again, in another program and another order:
// what happens in an episode depends on its seed alone.
func checkRepeats(t *testing.T, binary string, rows []Row) {
	const from, count = 21, 5
	order := Order{First: from, Count: count}
	for _, row := range slices.Backward(rows) {
		order.Peers = append(order.Peers, row.Peer)
	}
	for i, again := range launched(t, binary, order) {
		first := rows[len(rows)-1-i]
		if !again.Repeatable && os.Getenv("CI") != "true" {
			continue
		}
		for j, hash := range again.Hashes {
			if first.Hashes[from-1+j] != hash {
				t.Errorf("%s: seed %d is not repeated", again.Peer, from+j)
			}
		}
	}
}
