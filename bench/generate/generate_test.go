package main

import (
	"bytes"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestShortRun does not check speed. It checks that each command runs in the wide module, also after
// edits, and that the report has the figures and targets. The other modules have hundreds
// of packages to type-check, so only make bench/generate measures them.
func TestShortRun(t *testing.T) {
	o, err := parseOptions([]string{"-runs", "1", "-peers", "", "-only", "wide,vet", "-wide", "20", "-keep", t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`(?m)^  lockgen -check takes \d+\.\d{3} of go list \(at most 1\.50\): (met|NOT MET)$`,
		`(?m)^a module of 20 packages and 10400 lines, 1 annotated, unchanged$`,
		`(?m)^  go list +\d[\d.ms]* +\d[\d.ms]* +[1-9]\d* MB$`,
		`(?m)^  lockgen vet takes \d+\.\d{3} of go vet \(at most 0\.50\): `,
		`(?m)^  lockgen vet takes [1-9]\d* MB at first, and [1-9]\d* \(at most 300\): met$`,
	} {
		if !regexp.MustCompile(line).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", line, &out)
		}
	}
}

func TestRatiosAreThoseOfARound(t *testing.T) {
	of := func(ms ...int) (out []sample) {
		for _, m := range ms {
			out = append(out, sample{wall: time.Duration(m) * time.Millisecond})
		}
		return out
	}
	w := &workload{commands: []command{{name: "a"}, {name: "b"}}}
	r := result{workload: w, samples: [][]sample{of(1, 20, 3), of(10, 40, 10)}} // the second round was slow for both
	if got := r.ratio(target{ours: "a", theirs: "b"}); math.Abs(got-0.3) > 1e-9 {
		t.Errorf("ratio %v, want 0.3", got)
	}
	if got := median(r.samples[0], sample.wallTime); got != 3*time.Millisecond {
		t.Errorf("median %v, want 3ms", got)
	}
}

func TestUnknownPeer(t *testing.T) {
	_, err := newBench(t.Context(), t.TempDir(), []string{"nothing"})
	if err == nil || !strings.Contains(err.Error(), "no peer is called nothing") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownWorkload(t *testing.T) {
	_, err := parseOptions([]string{"-only", "vet,nothing"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `no workload "nothing"; there is service, layers, wide, vet`) {
		t.Errorf("got %v", err)
	}
}
