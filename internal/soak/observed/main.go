package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

func main() {
	jar := flag.String("tlc", "", "tla2tools.jar, as make spec fetches it")
	spec := flag.String("spec", "", "the `folder` spec")
	flag.Parse()
	if err := run(*jar, *spec, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "observed:", err)
		os.Exit(1)
	}
}

func run(jar, spec string, files []string) error {
	var traces []trace
	left, holds := 0, 0
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		some, err := read(filepath.Base(name), file)
		_ = file.Close()
		if err != nil {
			return err
		}
		if len(some) == 0 {
			left++
		}
		for _, t := range some {
			holds += len(t.tokens)
			traces = append(append(traces, t), t.altered()...)
		}
	}
	if len(traces) == 0 {
		return errors.New("there is no history of a mutex without a fault that voids its promises")
	}
	begin := time.Now()
	said, err := tlc(jar, spec, module(traces))
	if err != nil {
		return err
	}
	wrong, refused := verdicts(traces, said)
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	fmt.Printf("%d files (%d left out): %d histories of %d holds are behaviours of Observer, %d altered ones are not, %v\n",
		len(files), left, len(traces)-refused, holds, refused, time.Since(begin).Round(time.Second))
	return nil
}

// tlc runs TLC on the model with these histories, and returns its output.
func tlc(jar, spec, histories string) (said []byte, err error) {
	dir, err := os.MkdirTemp("", "observed-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	for _, name := range []string{"Observer.tla", "Observer.cfg"} {
		text, err := os.ReadFile(filepath.Join(spec, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "Histories.tla"), []byte(histories), 0o600); err != nil {
		return nil, err
	}
	jar, err = filepath.Abs(jar)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("java", "-XX:+UseSerialGC", "-Xss64m", "-Djava.io.tmpdir="+dir, "-cp", jar,
		"tlc2.TLC", "-workers", "1", "-deadlock", "Observer.tla")
	cmd.Dir = dir
	said, err = cmd.CombinedOutput()
	return said, ended(said, err)
}

// ended returns an error unless TLC has checked all states.
func ended(said []byte, err error) error {
	if err == nil && bytes.Contains(said, []byte("Model checking completed. No error has been found.")) {
		return nil
	}
	return fmt.Errorf("TLC did not finish: %w\n%s", err, said[max(0, len(said)-2000):])
}

var line = regexp.MustCompile(`(?m)^<<"SEEN", (\d+), (\d+)>>$`)

// verdicts compares how far TLC got in each history with how far it should get. It
// returns the differences, and the number of altered histories that were refused.
func verdicts(traces []trace, said []byte) (wrong []error, refused int) {
	far := make([]int, len(traces))
	for _, m := range line.FindAllSubmatch(said, -1) {
		i, _ := strconv.Atoi(string(m[1]))
		n, _ := strconv.Atoi(string(m[2]))
		if i < 1 || i > len(far) {
			return []error{fmt.Errorf("TLC reports history %d of %d", i, len(far))}, 0
		}
		far[i-1] = max(far[i-1], n)
	}
	for i, t := range traces {
		all := far[i] == len(t.events)
		switch {
		case all && t.bad:
			wrong = append(wrong, fmt.Errorf("%s: it was altered, and passed", t.name))
		case !all && !t.bad:
			next := t.events[far[i]]
			wrong = append(wrong, fmt.Errorf("%s: event %d of %d, %q of hold %d at %d, is not possible",
				t.name, far[i]+1, len(t.events), next.what, next.hold, next.at))
		case t.bad:
			refused++
		}
	}
	return wrong, refused
}
