// Command mutants checks the soak. It makes copies of the runtime with one known mistake
// each, and expects the soak to find every mistake.
//
//	GOWORK=off go run -C internal/soak ./mutants
//	GOWORK=off go run -C internal/soak ./mutants -only tombstone,deadline -duration 5m
//
// It exits with 1 if a mistake is not found or its patch no longer applies, or if the
// unchanged runtime does not pass.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/internal/soak"
	"github.com/lockgen/lockgen/internal/soak/mutant"
)

// needed lists the files and folders that a copy needs to build the soak.
var needed = []string{"go.mod", "go.sum", "runtime", "internal/testserver", "internal/faultproxy", "internal/soak"}

func main() {
	root := flag.String("root", "../..", "the `folder` of the repository")
	only := flag.String("only", "", "only these `names`, separated by commas")
	duration := flag.Duration("duration", 90*time.Second, "how long to search for a mutant")
	control := flag.Duration("control", 30*time.Second, "how long the unchanged runtime must pass; 0 skips this")
	seed := flag.Uint64("seed", 1, "seed of all the runs")
	flag.Parse()
	ok := true
	if *control > 0 {
		ok = report(mutant.Mutant{Name: "(none)", Mistake: "the unchanged runtime"}, *root, *control, *seed, false)
	}
	for _, m := range slices.Concat(mutant.All, mutant.OfKinds, mutant.OfExtras) {
		if *only == "" || slices.Contains(strings.Split(*only, ","), m.Name) {
			ok = report(m, *root, *duration, *seed, true) && ok
		}
	}
	if !ok {
		os.Exit(1)
	}
}

// report prints a row of the table. It returns whether the result for m is the expected one.
func report(m mutant.Mutant, root string, d time.Duration, seed uint64, caught bool) bool {
	begin := time.Now()
	summary, err := try(m, root, d, seed)
	verdict, good := "", false
	switch {
	case err != nil:
		verdict = "ERROR: " + err.Error()
	case len(summary.Violations) == 0:
		verdict, good = fmt.Sprintf("nothing found in %d episodes", summary.Episodes), !caught
	default:
		first := summary.Violations[0]
		text, _, _ := strings.Cut(first.String(), "\n")
		verdict, good = fmt.Sprintf("caught after %d episodes: %s", summary.Episodes, text), caught
	}
	mark := "ok  "
	if !good {
		mark = "FAIL"
	}
	fmt.Printf("%s  %-11s %-58s %4.0f s  %s\n", mark, m.Name, m.Mistake, time.Since(begin).Seconds(), verdict)
	return good
}

// try runs the soak on a copy of root with m's mistake.
func try(m mutant.Mutant, root string, d time.Duration, seed uint64) (*soak.Summary, error) {
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
	bin, result := filepath.Join(copied, "soak"), filepath.Join(copied, "soak.json")
	build := exec.Command("go", "build", "-o", bin, "./cmd")
	build.Dir = filepath.Join(copied, "internal", "soak")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mutant %s does not compile: %s", m.Name, out)
	}
	args := []string{"-failfast", "-duration", d.String(), "-seed", strconv.FormatUint(seed, 10), "-json", result}
	if m.Patches != nil { // don't keep the files of a mutant
		args = append(args, "-out", copied)
	}
	if m.Faults != nil {
		args = append(args, "-faults", strings.Join(m.Faults, ","))
	}
	if m.Locks != "" {
		args = append(args, "-locks", m.Locks)
	}
	out, err := exec.Command(bin, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if m.Patches == nil && err != nil {
		fmt.Fprintf(os.Stderr, "%s", out)
	}
	text, err := os.ReadFile(result)
	if err != nil {
		return nil, err
	}
	summary := &soak.Summary{}
	return summary, json.Unmarshal(text, summary)
}
