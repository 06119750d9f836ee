package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// section is a part of the page: its runs and the table of their results.
type section struct {
	title string
	what  string // what was done
	runs  []run
	table func(s *section, of func(name string) *outcome) []row
}

// row is a row of a table. The first row is the head.
type row []string

// fewMutants names mistakes that are found within a minute, one for each promise that the simulation checks.
const fewMutants = "unowned,deadline,tombstone,wallclock,permit,old-reader,undone-tick,token-forgot,handoff-over,renew-late,untold,missed"

// engines lists the engines of the simulation, in the order of the page.
var engines = []string{"redis", "memory", "locktest", "etcd", "zookeeper", "consul", "row", "quorum", "failover", "sharded"}

// storms lists the engines of the storms with the arguments of make for each.
var storms = []struct {
	name string
	args []string
}{
	{"redis", []string{"ENGINE=redis"}},
	{"etcd", []string{"ENGINE=etcd"}},
	{"zookeeper", []string{"ENGINE=zookeeper"}},
	{"consul", []string{"ENGINE=consul"}},
	{"sql", []string{"ENGINE=sql"}},
	{"several", []string{"SERVERS=redis", "ONLY=-only redis", "TOOLS=",
		"PKG=./runtime/backends/memlock/... ./runtime/backends/quorum/... ./runtime/backends/failover/... ./runtime/backends/sharded/..."}},
}

func sections(c config) []section {
	all := []section{
		{
			title: "Simulation",
			what: "Episodes of processes, a network and an engine in virtual time. A seed gives the whole episode again, to the byte: `make sim SEED=7 SIMFLAGS='-engine redis -history folder'`\n" +
				"writes its history. Redis is miniredis with the real scripts, of which quorum, failover and sharded have several; row, etcd, zookeeper and consul are models of those engines; memory and locktest are the packages themselves.",
			table: simulated,
		},
		{
			title: "Mistakes made on purpose",
			what:  "Each changes one rule of the runtime or of a script, and the simulation must find it. One that is not found is a hole in the scenarios.",
			runs: []run{{"mutants", minutes(8), []string{"sim/mutants",
				"SIMFLAGS=" + strings.TrimSpace("-times 1 -limit 30s -json FILE "+only(c.mutants))}}},
			table: mutants,
		},
		{
			title: "Other libraries under the same faults",
			what: "The same plans, on Redis, by the same interface. A cell says how often the library broke that promise, in how many episodes, and the first seed that shows it:\n" +
				"`make sim/peers SIMFLAGS='-peers redsync -seed 7 -explain'` tells that episode. `naive` is no library but a lock with every mistake, which shows that each column can be found broken.\n" +
				"Some of these promises the libraries do not make: none of them has a fencing token. [What is known of each](../internal/sim/peers/doc.go).",
			runs:  []run{{"peers", minutes(5), []string{"sim/peers", fmt.Sprintf("SIMFLAGS=-seed %d -seeds %d -json FILE", c.seed, c.peers)}}},
			table: peers,
		},
		{
			title: "Soak on a real Redis",
			what: "Real processes that are killed and stopped, a real redis-server that is stopped, restarted and frozen, proxies that lose and delay. The histories are checked by our rules and a second time by porcupine.\n" +
				"`SOAKFLAGS=-keep` keeps them. The same seed draws the same plans; what the machine makes of them differs.",
			runs:  []run{{"soak", c.soak + minutes(2), []string{"soak", "SOAKTIME=" + c.soak.String(), fmt.Sprintf("SOAKFLAGS=-seed %d -json FILE", c.seed)}}},
			table: soaked,
		},
		{
			title: "Storms on every engine",
			what: "Lockers on real servers that wait, give up, hold on and die at random, with faults on their ways. A storm fails if two were ever sure to hold a key, if a later hold has no higher token,\n" +
				"if a call does not come back, or if a key is not free in the end.",
			table: stormed,
		},
		{
			title: "Histories against the model",
			what:  "Histories of the simulation and of the soak, as behaviours of [Observer.tla](../spec/README.md), by TLC. Each is also altered, and must be refused then.",
			runs:  []run{{"histories", minutes(4), []string{"spec/histories", "SEEDS=50", "SOAKTIME=15s"}}},
			table: lastLine,
		},
	}
	for _, engine := range engines {
		d := c.sim
		if engine == "redis" {
			d *= 3
		}
		all[0].runs = append(all[0].runs, run{"sim/" + engine, d + minutes(2), []string{"sim", fmt.Sprintf("SEED=%d", c.seed), "SEEDS=1000000",
			fmt.Sprintf("SIMFLAGS=-engine %s -limit %v -json FILE", engine, d)}})
	}
	for _, s := range storms {
		args := append([]string{"--keep-going", "storm", fmt.Sprintf("STORMTIME=%v,%d", c.storm, c.seed), "GOTESTFLAGS=-json"}, s.args...)
		all[4].runs = append(all[4].runs, run{"storm/" + s.name, minutes(4) + 12*c.storm, args})
	}
	return all
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

func only(names string) string {
	if names == "" {
		return ""
	}
	return "-only " + names
}

func simulated(s *section, of func(string) *outcome) []row {
	rows := []row{{"engine", "seeds", "episodes", "critical sections", "faults", "virtual time", "events in the histories", "violations"}}
	for _, r := range s.runs {
		var got struct {
			First, FirstBad                                 uint64
			Episodes, Violations, Sections, Faults, Records int
			FaultKinds                                      map[string]int
			Virtual                                         time.Duration
		}
		if of(r.name).report(&got) != nil {
			continue
		}
		bad := fmt.Sprint(got.Violations)
		if got.Violations > 0 {
			bad += fmt.Sprintf(", first in seed %d", got.FirstBad)
		}
		rows = append(rows, row{strings.TrimPrefix(r.name, "sim/"), fmt.Sprintf("%d to %d", got.First, got.First+uint64(got.Episodes)-1), fmt.Sprint(got.Episodes), fmt.Sprint(got.Sections),
			fmt.Sprintf("%d of %d kinds", got.Faults, len(got.FaultKinds)), got.Virtual.Round(time.Second).String(), fmt.Sprint(got.Records), bad})
	}
	return rows
}

func mutants(s *section, of func(string) *outcome) []row {
	rows := []row{{"name", "mistake", "found after", "by"}}
	var got []struct {
		Name, Mistake string
		OK            bool
		Searches      []struct {
			Seeds int
			Took  time.Duration
			Found string
		}
	}
	_ = of(s.runs[0].name).report(&got)
	for _, m := range got {
		for _, search := range m.Searches {
			after := fmt.Sprintf("%d seeds, %.1f s", search.Seeds, search.Took.Seconds())
			if search.Found == "" && m.Name != "(none)" {
				after = "**not found** in " + after
			}
			rows = append(rows, row{m.Name, m.Mistake, after, brief(search.Found)})
		}
		if len(m.Searches) == 0 {
			rows = append(rows, row{m.Name, m.Mistake, "**not looked for**", ""})
		}
	}
	return rows
}

func peers(s *section, of func(string) *outcome) []row {
	rows := []row{{"library", "episodes", "critical sections"}}
	var got []struct {
		Peer               string
		Episodes, Sections int
		Cells              []struct {
			Oracle             string
			Findings, Episodes int
			Seed               uint64
		}
	}
	_ = of(s.runs[0].name).report(&got)
	for _, p := range got {
		line := row{p.Peer, fmt.Sprint(p.Episodes), fmt.Sprint(p.Sections)}
		for _, c := range p.Cells {
			if !slices.Contains(rows[0], c.Oracle) {
				rows[0] = append(rows[0], c.Oracle)
			}
			cell := "0"
			if c.Findings > 0 {
				cell = fmt.Sprintf("%d in %d, #%d", c.Findings, c.Episodes, c.Seed)
			}
			line = append(line, cell)
		}
		rows = append(rows, line)
	}
	return rows
}

func soaked(s *section, of func(string) *outcome) []row {
	var got struct {
		Seed                         uint64
		Episodes, Processes, Samples int
		Operations, Faults, Writes   map[string]int
		WaitP50Ms, WaitP99Ms         float64
		WorstReturnAfterCtxMs        float64
		Violations                   []json.RawMessage
	}
	if of(s.runs[0].name).report(&got) != nil {
		return nil
	}
	return []row{
		{"what", "count"},
		{"seed", fmt.Sprint(got.Seed)},
		{"episodes", fmt.Sprint(got.Episodes)},
		{"processes", fmt.Sprint(got.Processes)},
		{"operations", counts(got.Operations)},
		{"faults", counts(got.Faults)},
		{"writes at a register that refuses an older token", counts(got.Writes)},
		{"looks at what the server has", fmt.Sprint(got.Samples)},
		{"wait for a lock", fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", got.WaitP50Ms, got.WaitP99Ms)},
		{"latest return after its context had ended", fmt.Sprintf("%.1f ms", got.WorstReturnAfterCtxMs)},
		{"violations", fmt.Sprint(len(got.Violations))},
	}
}

// stormed reads the attributes that storms write into the output of go test -json.
func stormed(s *section, of func(string) *outcome) []row {
	rows := []row{{"run", "storm", "seed", "holds", "calls that failed, as they may", "faults", "Lockers", "test"}}
	for _, r := range s.runs {
		o := of(r.name)
		if o == nil {
			continue
		}
		verdicts := map[string]string{}
		type event struct{ Action, Package, Test, Key, Value string }
		var told []event
		for line := range strings.Lines(o.Output) {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				continue
			}
			switch e.Action {
			case "attr":
				if e.Key == "storm" {
					told = append(told, e)
				}
			case "pass", "fail", "skip":
				verdicts[e.Package+e.Test] = e.Action
			}
		}
		for _, e := range told {
			var got struct {
				Name                             string
				Seed                             uint64
				Holds, Failures, Faults, Lockers int
			}
			if json.Unmarshal([]byte(e.Value), &got) != nil {
				continue
			}
			verdict := verdicts[e.Package+e.Test]
			if verdict != "pass" {
				verdict = "**" + verdict + "**"
			}
			rows = append(rows, row{strings.TrimPrefix(r.name, "storm/"), got.Name, fmt.Sprint(got.Seed), fmt.Sprint(got.Holds), fmt.Sprint(got.Failures), fmt.Sprint(got.Faults), fmt.Sprint(got.Lockers), verdict})
		}
	}
	return rows
}

// lastLine returns a table with the last line of the output.
func lastLine(s *section, of func(string) *outcome) []row {
	o := of(s.runs[0].name)
	if o == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(o.Output), "\n")
	return []row{{"what it printed last"}, {lines[len(lines)-1]}}
}

// counts lists the counts of a map, sorted by name.
func counts(of map[string]int) string {
	var names []string
	for name, n := range of {
		names = append(names, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// brief returns the first sentence of a checker's finding.
func brief(text string) string {
	if runes := []rune(text); len(runes) > 120 {
		return string(runes[:119]) + "…"
	}
	return text
}
