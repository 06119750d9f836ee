// Record runs the simulation, the soak and the storms, the same simulation on other lock
// libraries, and the search for mistakes that were made on purpose, and writes a page that says what was
// claimed, what was done to it, and what came of it, so that anyone can repeat it.
//
//	record -seeds 4000 -soak 10m -storm 1m -out docs/record.md
//
// It runs make in the current folder, which is the root of the project. What fails is on the page, and the exit
// status is 1 then.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// phase is one run of make.
type phase struct {
	title string
	what  string // was done, for the page
	args  []string
	keep  func(line string) bool // lines of its output that go onto the page
}

func main() {
	seeds := flag.Int("seeds", 4000, "`episodes` of the simulation")
	first := flag.Uint64("seed", 1, "the first `seed`, of the simulation and the soak")
	soak := flag.Duration("soak", 10*time.Minute, "`how long` the soak lasts")
	storm := flag.Duration("storm", time.Minute, "`how long` the storm on each engine lasts")
	peers := flag.Int("peers", 250, "`episodes` of each other library")
	out := flag.String("out", "docs/record.md", "the `page`")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	page, passed := record(phases(*seeds, *first, *soak, *storm, *peers), runMake, time.Now())
	if err := os.WriteFile(*out, page, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
	if !passed {
		os.Exit(1)
	}
}

func phases(seeds int, first uint64, soak, storm time.Duration, peers int) []phase {
	return []phase{
		{
			"Simulation", "Episodes of processes, network and Redis in virtual time, each from its seed. The episode is repeated to the byte by its seed.",
			[]string{"sim", fmt.Sprintf("SEEDS=%d", seeds), fmt.Sprintf("SEED=%d", first)},
			func(line string) bool {
				return strings.Contains(line, "violation") || strings.Contains(line, "hash") && !strings.HasSuffix(line, " ok")
			},
		},
		{
			"Mistakes made on purpose", "Each changes one rule of the runtime or of a script. The number of seeds that it took to find it is printed; one that is not found would be a hole in the scenarios.",
			[]string{"sim/mutants", "SIMFLAGS=-times 1"},
			func(line string) bool { return line != "" && !strings.Contains(line, "go run") },
		},
		{
			"Other libraries in the same simulation", "The same plans and the same faults. A cell says how many findings there were, in how many episodes, and the first seed.",
			[]string{"sim/peers", fmt.Sprintf("SIMFLAGS=-seeds %d", peers)},
			func(line string) bool { return !strings.Contains(line, " seed ") && strings.Count(line, "  ") > 4 },
		},
		{
			"Soak on a real Redis", "Real processes that are killed and stopped, a real redis-server, proxies that lose and delay. The histories are checked.",
			[]string{"soak", "SOAKTIME=" + soak.String(), fmt.Sprintf("SOAKFLAGS=-seed %d", first)},
			func(line string) bool {
				return line != "" && !strings.Contains(line, "go run -C internal/soak ./cmd -d") && !strings.HasPrefix(line, "scripts/")
			},
		},
		{
			"Storms on every engine", "Lockers on real servers that wait, give up, hold on and die at random, with faults on their ways.",
			[]string{"--keep-going", "storm", fmt.Sprintf("STORMTIME=%v,%d", storm, first)},
			func(line string) bool { return strings.Contains(line, ": storm ") || strings.Contains(line, "FAIL") },
		},
	}
}

// runMake runs make with args and returns what it printed.
func runMake(args ...string) ([]byte, error) {
	cmd := exec.Command("make", append([]string{"--no-print-directory"}, args...)...)
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(os.Stdout, &output)
	cmd.Stderr = io.MultiWriter(os.Stderr, &output)
	err := cmd.Run()
	return output.Bytes(), err
}

const claims = `What is claimed: G1 to G15 of [guarantees.md](guarantees.md). The checker looks for two holders at once, a write that an older holder made after a newer one, a token
that falls, a lock that stays when its holder is gone, a waiter that is forgotten, a context that outlives its lease, a call that outlives its context, polling, errors
that say the wrong thing, and goroutines that leak. What it can't see: faults that nobody drew, and what the simulated server does otherwise than the real one
(a differential test compares the two).
`

// record runs the phases and returns the page, and whether all of them passed.
func record(phases []phase, run func(...string) ([]byte, error), now time.Time) (page []byte, passed bool) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Record\n\nMade by `make record` on %s, commit %s, %s, %d processors of %s/%s.\n\n%s",
		now.UTC().Format("2006-01-02"), commit(), runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, claims)
	passed = true
	for _, p := range phases {
		begun := time.Now()
		output, err := run(p.args...)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", p.title, p.what)
		verdict := "passed"
		if err != nil {
			passed, verdict = false, "**failed**: "+err.Error()
		}
		fmt.Fprintf(&b, "`make %s`: %s, in %v.\n\n```\n", quoted(p.args), verdict, time.Since(begun).Round(time.Second))
		for line := range strings.Lines(string(output)) {
			if line = strings.TrimRight(line, " \n"); p.keep(line) {
				fmt.Fprintln(&b, strings.TrimSpace(line))
			}
		}
		fmt.Fprint(&b, "```\n")
	}
	return b.Bytes(), passed
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func quoted(args []string) string {
	all := make([]string, len(args))
	for i, arg := range args {
		if all[i] = arg; strings.Contains(arg, " ") {
			all[i] = "'" + arg + "'"
		}
	}
	return strings.Join(all, " ")
}
