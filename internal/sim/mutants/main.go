// Command mutants makes one mistake after another in a copy of the runtime. It simulates each
// copy, and prints how many seeds it took to find the mistake. If a mistake is not found, the
// scenarios are incomplete.
//
//	GOWORK=off go run -C internal/sim ./mutants -only untold,tombstone
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
	"github.com/lockgen/lockgen/internal/sim/launch"
	"github.com/lockgen/lockgen/internal/soak/mutant"
)

// needed lists the files and folders that a copy needs to build the simulation.
var needed = []string{"go.mod", "go.sum", "runtime", "internal/sim", "internal/soak"}

// seedStep is the difference between the first seeds of two searches.
const seedStep = 1_000_000

func main() { os.Exit(run()) }

func run() int {
	root := flag.String("root", "../..", "the `folder` of the repository")
	only := flag.String("only", "", "only these `names`, separated by commas")
	limit := flag.Duration("limit", 3*time.Minute, "time limit of each search for a mutant")
	times := flag.Int("times", 5, "number of searches for each mutant, each from a different seed; the median is printed")
	file := flag.String("json", "", "also write the results to this `file`")
	control := flag.Uint64("control", 300, "number of seeds that the unchanged runtime must pass")
	flag.Parse()
	if *times < 1 || flag.NArg() > 0 {
		flag.Usage()
		return 2
	}
	_ = os.Setenv("LOCKGEN_SOAK_SKEW", "-150ms") // for the mutant that trusts the wall clock
	all := slices.Concat(mutant.All, mutant.OfKinds, mutant.OfExtras, more)
	names := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range names {
		if !slices.ContainsFunc(all, func(m mutant.Mutant) bool { return m.Name == name }) {
			fmt.Fprintf(os.Stderr, "mutants: no mutant %q\n", name)
			return 2
		}
	}
	var rows []Row
	if *control > 0 && len(names) == 0 {
		s, err := try(mutant.Mutant{Name: "none"}, *root, []sim.Options{{First: 1, Count: *control, NoShrink: true}})
		row := Row{Name: "(none)", Mistake: "the unchanged runtime", OK: err == nil && s[0].Found == "", Searches: s}
		row.report(fmt.Sprintf("%v %v", s, err))
		rows = append(rows, row)
	}
	for _, m := range all {
		if len(names) > 0 && !slices.Contains(names, m.Name) {
			continue
		}
		var searches []sim.Options
		for i := range *times {
			searches = append(searches, sim.Options{Choice: choiceFor(m), First: uint64(i)*seedStep + 1, Count: seedStep, FailFast: true, NoShrink: true, Limit: *limit})
		}
		found, err := try(m, *root, searches)
		row := Row{Name: m.Name, Mistake: m.Mistake, Searches: found}
		row.OK = err == nil && !slices.ContainsFunc(found, func(s Search) bool { return s.Found == "" })
		row.report(verdict(found, err))
		rows = append(rows, row)
	}
	missed := len(slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.OK }))
	fmt.Printf("%d mutants missed\n", missed)
	if *file != "" {
		text, err := json.MarshalIndent(rows, "", "  ")
		if err == nil {
			err = os.WriteFile(*file, append(text, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			return 2
		}
	}
	return min(missed, 1)
}

// choiceFor returns the episodes in which to search for m. If only an engine made of several has the mistake, it
// chooses that engine, because no seed draws it. For a mistake in sticky leases it chooses sticky leases, because
// few seeds draw them, and no faults, because faults excuse a wait.
func choiceFor(m mutant.Mutant) sim.Choice {
	if m.Patches[0].File == locker+"sticky.go" {
		return sim.Choice{Engine: "redis", Sticky: true, Faults: []int{}}
	}
	for _, engine := range []string{"quorum", "failover", "sharded"} {
		if strings.HasPrefix(m.Patches[0].File, "runtime/backends/"+engine+"/") {
			return sim.Choice{Engine: engine, Kinds: m.Faults}
		}
	}
	return sim.Choice{LockKind: m.Locks}
}

// Row is the result for one mutant.
type Row struct {
	Name, Mistake string
	OK            bool // each search found the mistake
	Searches      []Search
}

// Search is the result of one search for a mutant.
type Search struct {
	Seeds int // number of seeds
	Took  time.Duration
	Found string // the first violation, or ""
}

func (r *Row) report(verdict string) {
	mark := "ok  "
	if !r.OK {
		mark = "FAIL"
	}
	fmt.Printf("%s  %-13s %-62s %s\n", mark, r.Name, r.Mistake, verdict)
}

// verdict describes the median of the searches and its violation.
func verdict(found []Search, err error) string {
	if err != nil {
		return "ERROR: " + err.Error()
	}
	slices.SortFunc(found, func(a, b Search) int { return a.Seeds - b.Seeds })
	middle, most := found[len(found)/2], found[len(found)-1]
	if missed := slices.IndexFunc(found, func(s Search) bool { return s.Found == "" }); missed >= 0 {
		return fmt.Sprintf("NOT FOUND in %d seeds, %.0f s", found[missed].Seeds, found[missed].Took.Seconds())
	}
	return fmt.Sprintf("median %d seeds, %.1f s; most %d seeds, %.1f s: %s", middle.Seeds, middle.Took.Seconds(), most.Seeds, most.Took.Seconds(), middle.Found)
}

// try simulates a copy of root with m's mistake.
func try(m mutant.Mutant, root string, orders []sim.Options) (found []Search, err error) {
	copied, err := os.MkdirTemp("", "lockgen-mutant-"+m.Name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(copied)
	if err := mutant.Copy(root, copied, needed...); err != nil {
		return nil, err
	}
	if err := m.Apply(copied); err != nil {
		return nil, err
	}
	binary := filepath.Join(copied, "sim.test")
	if err := launch.Build(filepath.Join(copied, "internal", "sim"), binary, os.Stderr); err != nil {
		return nil, err
	}
	for _, o := range orders {
		order, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		begin := time.Now()
		if _, err := launch.Run(binary, "TestEpisodes", string(order), &out); err != nil {
			// A mistake may end the whole program, for example by a panic in a goroutine.
			found = append(found, Search{Seeds: lines(out.String()) + 1, Took: time.Since(begin), Found: "crash: " + firstPanic(err)})
			continue
		}
		found = append(found, Search{lines(out.String()), time.Since(begin), failure(out.String())})
	}
	return found, nil
}

// lines counts the episodes in out.
func lines(out string) int { return strings.Count("\n"+out, "\nseed ") }

// failure returns the first violation in out, or "".
func failure(out string) string {
	_, text, _ := strings.Cut(out, " FAIL ")
	text, _, _ = strings.Cut(text, "\n")
	return text
}

func firstPanic(err error) string {
	for line := range strings.Lines(err.Error()) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return err.Error()
}
