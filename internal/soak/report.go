package soak

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// Summary describes a run and its results.
type Summary struct {
	Seed       uint64              `json:"seed"`
	Command    string              `json:"command"`
	Seconds    float64             `json:"seconds"`
	Episodes   int                 `json:"episodes"`
	Bad        int                 `json:"badEpisodes"` // with a violation
	Processes  int                 `json:"processes"`
	Operations map[string]int      `json:"operations"` // "acquire ok" and so on
	Faults     map[string]int      `json:"faults"`     // by kind
	Samples    int                 `json:"samples"`
	Writes     map[string]int      `json:"writes"` // at the register, by result
	WaitP50    float64             `json:"waitP50Ms"`
	WaitP99    float64             `json:"waitP99Ms"`
	WorstLate  float64             `json:"worstReturnAfterCtxMs"` // of processes that were not paused
	Violations []history.Violation `json:"violations"`

	waits []int64
}

func newSummary(o Options) *Summary {
	return &Summary{Seed: o.Seed, Command: o.again(), Operations: map[string]int{}, Faults: map[string]int{}, Writes: map[string]int{}}
}

// again returns the command that repeats a run or episodes of it.
func (o Options) again(episodes ...int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "GOWORK=off go run -C internal/soak ./cmd -seed %d -duration %v", o.Seed, o.Duration)
	if len(episodes) == 0 {
		episodes = o.Episodes
	}
	if len(episodes) > 0 {
		fmt.Fprintf(&b, " -episodes %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(episodes), " ", ","), "[]"))
	}
	if o.Locks != "" {
		fmt.Fprintf(&b, " -locks %s", o.Locks)
	}
	if len(o.Faults) > 0 {
		fmt.Fprintf(&b, " -faults %s", strings.Join(o.Faults, ","))
	}
	return b.String()
}

func (s *Summary) add(r *Result) {
	s.Episodes++
	s.Samples += len(r.History.Samples)
	s.Violations = append(s.Violations, r.Violations...)
	if len(r.Violations) > 0 {
		s.Bad++
	}
	for _, f := range r.History.Faults {
		s.Faults[f.Kind]++
	}
	for _, a := range r.History.Attempts {
		if a.Accepted {
			s.Writes["accepted"]++
		} else {
			s.Writes["rejected"]++
		}
	}
	paused := map[int]bool{}
	for _, f := range r.History.Faults {
		paused[f.Proc] = true
	}
	for _, rec := range r.History.Records {
		if rec.Op == history.Started {
			s.Processes++
		}
		if rec.Outcome == "" {
			continue // a beginning; its end is counted
		}
		s.Operations[string(rec.Op)+" "+string(rec.Outcome)]++
		if rec.Op == history.Acquire && rec.Outcome == history.OK {
			s.waits = append(s.waits, rec.Ret-rec.Call)
		}
		if rec.Op == history.Acquire && rec.CtxEnd != 0 && !paused[rec.Proc] {
			s.WorstLate = max(s.WorstLate, float64(rec.Ret-rec.CtxEnd)/1e6)
		}
	}
}

func (s *Summary) finish(took time.Duration) {
	s.Seconds = took.Seconds()
	slices.Sort(s.waits)
	if n := len(s.waits); n > 0 {
		s.WaitP50 = float64(s.waits[n/2]) / 1e6
		s.WaitP99 = float64(s.waits[n*99/100]) / 1e6
	}
}

// Print writes s for a person.
func (s *Summary) Print(w io.Writer) {
	operations := 0
	for _, n := range s.Operations {
		operations += n
	}
	fmt.Fprintf(w, "%d episodes, %d processes, %d operations, %d samples in %.0f s\n", s.Episodes, s.Processes, operations, s.Samples, s.Seconds)
	table := func(title string, counts map[string]int) {
		fmt.Fprintf(w, "%s:\n", title)
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(w, "  %-24s %8d\n", name, counts[name])
		}
	}
	table("operations", s.Operations)
	table("writes at the fenced register", s.Writes)
	table("faults", s.Faults)
	fmt.Fprintf(w, "wait for a lock: p50 %.1f ms, p99 %.1f ms; latest return after its context ended: %.1f ms\n", s.WaitP50, s.WaitP99, s.WorstLate)
	for _, v := range s.Violations {
		fmt.Fprintf(w, "VIOLATION: %v\n", v)
	}
	fmt.Fprintf(w, "violations: %d, in %d episodes\nthis run again: %s\n", len(s.Violations), s.Bad, s.Command)
}

// secondOpinion returns the findings of porcupine, and its pictures.
func secondOpinion(r *Result) (found []history.Violation, pictures []porcupine.LinearizationInfo) {
	found = history.SecondOpinion(r.History, func(_ string, info porcupine.LinearizationInfo) {
		pictures = append(pictures, info)
	})
	return found, pictures
}

// save writes everything that is known of an episode into folder, one JSON value per line:
// the violations, the faults, then records, attempts and samples in the order of time.
func save(folder string, seed uint64, r *Result, pictures []porcupine.LinearizationInfo) (path string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(folder, fmt.Sprintf("soak-%d-%d-%d", seed, r.Plan.Episode, time.Now().UnixMilli()))
	for i, info := range pictures {
		if err := history.SavePicture(info, fmt.Sprintf("%s-%d.html", name, i)); err != nil {
			return "", err
		}
	}
	file, err := os.Create(name + ".jsonl")
	if err != nil {
		return "", err
	}
	out := json.NewEncoder(file)
	lines := lines(r)
	for _, line := range lines {
		if err == nil {
			err = out.Encode(line.value)
		}
	}
	return file.Name(), cmp.Or(err, file.Close())
}

type line struct {
	at    int64
	value any
}

func lines(r *Result) []line {
	var head, body []line
	for _, v := range r.Violations {
		head = append(head, line{0, map[string]any{"violation": v}})
	}
	for _, f := range r.History.Faults {
		head = append(head, line{0, map[string]any{"fault": f}})
		body = append(body, line{f.Begin, map[string]any{"fault": f}})
	}
	for _, rec := range r.History.Records {
		if rec.Ret == 0 {
			body = append(body, line{rec.Call, rec})
		} else {
			body = append(body, line{rec.Ret, rec})
		}
	}
	for _, a := range r.History.Attempts {
		body = append(body, line{a.At, map[string]any{"register": a}})
	}
	for _, s := range r.History.Samples {
		body = append(body, line{s.End, map[string]any{"sample": s}})
	}
	slices.SortStableFunc(body, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	return append(head, body...)
}
