package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/internal/testserver"
)

// TestMain makes the test binary a worker when the harness starts it as one.
func TestMain(m *testing.M) {
	drain = 30 * time.Second // 64 processes wait, and the machine may be late for each
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	// The race detector makes each worker wait for a second when it ends.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// tiny returns options with which every workload is short.
func tiny(t *testing.T) options {
	t.Helper()
	periods = 1
	o, err := parseOptions([]string{
		"-redis", testserver.StartRedis(t).Addr(),
		"-runs", "1", "-seconds", "0.03", "-holds", "20", "-holds-ttl", "2400ms", // longer than a pause of the machine
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOursIsExactInEveryWorkload does not check speed. It checks that each hold is alone
// and has a token of its own, that no waiter is forgotten and that no lease is lost.
func TestOursIsExactInEveryWorkload(t *testing.T) {
	o := tiny(t)
	for _, w := range workloads() {
		if w.lacks != nil && w.lacks() != nil {
			continue // interop/ tests the real Redisson
		}
		t.Run(w.name, func(t *testing.T) {
			smoke(t, o, w, peers.Ours)
		})
	}
}

// forgetful is a peer that sometimes forgets a waiter, which then waits until its
// context ends. This is a defect of that library; it must not fail our test.
const forgetful = "rueidislock"

// TestEveryPeerIsDriven checks that the adapters of the other libraries work.
func TestEveryPeerIsDriven(t *testing.T) {
	o := tiny(t)
	for _, name := range peers.Names() {
		if peers.Redis.Find(name).Laps != nil {
			continue // interop/ tests the Java programs
		}
		t.Run(name, func(t *testing.T) {
			if peers.Redis.Find(name).InProcess {
				smoke(t, o, workloadNamed(wHot), name)
				return
			}
			smoke(t, o, workloadNamed(wSolo), name)
			if name != forgetful {
				smoke(t, o, workloadNamed(wWakeup), name)
			}
		})
	}
}

func smoke(t *testing.T, o options, w *workload, peer string) {
	t.Helper()
	chosen, err := peers.Choose(peer)
	if err != nil {
		t.Fatal(err)
	}
	o.only, o.peers = []*workload{w}, chosen
	r, err := run(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	row := r.Parts[0].row(peer)
	if len(row.Runs) != o.runs {
		t.Fatalf("%d runs, want %d", len(row.Runs), o.runs)
	}
	for _, c := range w.columns {
		if _, ok := row.Values[c.name]; !ok {
			t.Errorf("no value for %s", c.name)
		}
	}
	if w.name == wSolo {
		// The count begins after the warm-up. On a busy machine there may be no hold at all, and a
		// pause may add a command that is sent at intervals or repeated, but not one for each hold.
		holds := row.Values[colRate.name].Median * o.length.Seconds()
		if got := row.Values[colCommands.name].Median; holds > 0 && (got < 2 || (got-2)*holds > 3) {
			t.Errorf("%v commands per uncontended hold of %v, want 2", got, holds)
		}
	}
}

func TestAnInterruptedRunLeavesNothingBehind(t *testing.T) {
	o := tiny(t)
	o.length = time.Minute
	o.only = []*workload{workloadNamed(wHot8x8)}
	o.peers, _ = peers.Choose(peers.Ours)
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := run(ctx, o, io.Discard); err == nil {
		t.Error("run continued to its end after the context was canceled")
	}
	if took := time.Since(begin); took > 2*exitTimeout {
		t.Errorf("it took %v", took)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReportReadsAsTableAndAsJSON(t *testing.T) {
	r := &report{Peers: []peerNote{{Name: "redsync"}, {Name: peers.Ours}}, Parts: []*part{{
		Workload: wHot, About: "about", columns: contended, summary: []column{colRate},
		Rows: []*row{
			{Peer: "redsync", rival: true, Runs: []metrics{{colRate.name: 10, colShares.name: 3}, {colRate.name: 30, colShares.name: 3}}},
			{Peer: peers.Ours, Runs: []metrics{{colRate.name: 4000, colShares.name: 1}}},
		},
	}}}
	r.Parts[0].sum()
	r.judge()
	var table, text bytes.Buffer
	if err := r.write(&table, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| redsync | 20 (10..30) | 3.00 |",
		"| hot, holds/s | 20 | 4,000 |",
		"| hot | holds/s at least 100 times that of the best peer | 200 times: 4,000 against 20 of redsync | met |",
		"| hot | holds/s at least 1,000,000 | 4,000 | **short** |",
		"| hot | shares max/min at most 1.20 | 1.00 | met |",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	if err := r.write(&text, true); err != nil {
		t.Fatal(err)
	}
	var read report
	if err := json.Unmarshal(text.Bytes(), &read); err != nil || len(read.Targets) != 3 {
		t.Errorf("JSON: %v, %v", err, read.Targets)
	}
}

func TestMistakesInTheCommandLineAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"-only cold":       `no workload "cold"`,
		"-peers etcd":      `no peer "etcd"`,
		"-runs 0":          "-runs 0",
		"-seconds 0":       "-seconds 0",
		"-holds-ttl 1ms":   "-holds-ttl",
		"solo":             `unexpected argument "solo"`,
		"-runs 1 -ttl 1ms": "-ttl",
	} {
		var stderr bytes.Buffer
		if code := front(strings.Fields(args), io.Discard, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit %d, %q; want %q", args, code, &stderr, want)
		}
	}
}

func TestNumbersReadWell(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{whole(1234567.8), "1,234,568"}, {whole(999), "999"}, {whole(-1000), "-1,000"},
		{decimal(2.004), "2.00"}, {decimal(1650.4), "1,650"},
		{duration(0), "0.00 ns"}, {duration(55_400), "55.4 µs"}, {duration(-2.5e6), "-2.50 ms"}, {duration(1.3e9), "1.30 s"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// With a delay the results are as exact, and no cycle is shorter than its round trips.
func TestARoundTripIsAdded(t *testing.T) {
	o := tiny(t)
	o.length, o.rtt = 50*time.Millisecond, 4*time.Millisecond
	o.only = []*workload{workloadNamed(wSolo)}
	o.peers, _ = peers.Choose(peers.Raw + "," + peers.Ours)
	r, err := run(t.Context(), o, io.Discard)
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r)
	}
	for _, row := range r.Parts[0].Rows {
		if v := row.Values[colCycle50.name].Min; v != 0 && v < float64(2*o.rtt)*0.99 {
			t.Errorf("%s: a cycle of two round trips took %s", row.Peer, duration(v))
		}
	}
}

// TestAnotherBuildIsAPeer checks that an earlier build of lockgen is measured as a separate peer.
func TestAnotherBuildIsAPeer(t *testing.T) {
	o := tiny(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	chosen, _ := peers.Choose(peers.Ours)
	other := *chosen[0]
	other.Name, other.Program = peers.Ours+"@abc", program
	o.only, o.peers = []*workload{workloadNamed(wProcs2)}, []*peers.Peer{chosen[0], &other}
	r, err := run(t.Context(), o, io.Discard)
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r)
	}
	var table strings.Builder
	r.summary(&table)
	if !strings.Contains(table.String(), "| | lockgen | lockgen@abc | lockgen / lockgen@abc |") || len(r.Parts[0].Rows) != 2 {
		t.Errorf("the table lacks the other build:\n%s", &table)
	}
}

func TestTheSummaryGoesBetweenItsMarkers(t *testing.T) {
	r := &report{Engine: "redis", RTT: "2ms", Peers: []peerNote{{Name: peers.Ours}}}
	file := t.TempDir() + "/README.md"
	before := "a\n<!-- figures redis -->\nb\n<!-- end -->\nc\n"
	if err := os.WriteFile(file, []byte(before+"<!-- figures redis 2ms -->\nold\n<!-- end -->\nd\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.writeInto(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), before+"<!-- figures redis 2ms -->\n") ||
		strings.Contains(string(text), "old") || !strings.HasSuffix(string(text), "|\n<!-- end -->\nd\n") {
		t.Errorf("%v:\n%s", err, text)
	}
	r.RTT = "3ms"
	if err := r.writeInto(file); err == nil {
		t.Error("no markers, no error")
	}
}
