package peers

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockgen/lockgen/internal/sim/launch"
)

// TestEpisodes executes the Order in its environment, if package launch has started it. Otherwise
// it runs a short form: it builds the simulation and runs some seeds with each
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

// known lists the defects of the other libraries that at least one episode in eight shows. If
// 30 seeds do not show one, the simulation can't find it any more. doc.go describes each of
// them, and the rarer ones.
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

// judge checks that ours breaks no oracle, and that the others break the known ones.
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

// checkOracles checks that each oracle finds its mistake.
func checkOracles(t *testing.T, binary string) {
	row := launched(t, binary, Order{Peers: []string{Naive.Name()}, First: 1, Count: 60})[0]
	for _, o := range Oracles() {
		if row.Cells[o].Findings == 0 {
			t.Errorf("%v is not found in the lock with all mistakes", o)
		}
	}
}

// checkRepeats runs some of the seeds again, in another program and another order, since
// an episode must depend only on its seed.
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
