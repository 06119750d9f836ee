// Plots draws the results of bench -json: rate, waiting, shares and cost of lockgen and of other
// libraries, and how they grow with keys, waiters, processes and holds. Each picture is an SVG and
// a PNG, for a light page and for a dark one.
//
//	go run ./plots -out ../docs/plots contention.json holds.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", "plots", "`folder` for the pictures")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: plots [-out FOLDER] REPORT.json...\nA report is what bench -json writes.")
		os.Exit(2)
	}
	if err := run(*out, flag.Args(), pictures, "svg", "png"); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(out string, files []string, pictures []picture, kinds ...string) error {
	var reports []*report
	for _, file := range files {
		r, err := read(file)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	drawn := 0
	for _, p := range pictures {
		data := p.collect(reports)
		if len(data.series) == 0 {
			continue // the reports lack its workloads
		}
		for _, t := range []theme{light, dark} {
			if err := p.draw(data, t, filepath.Join(out, p.name+"-"+t.name), kinds); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		drawn++
	}
	if drawn == 0 {
		return fmt.Errorf("%v: no picture shows any of these workloads", files)
	}
	return nil
}

// report is the part of bench's report that the pictures need.
type report struct {
	Began                       date
	Commit, Go, Engine, Version string
	RTT                         string
	Cores, Runs                 int
	Seconds                     float64
	Parts                       []part
}

type date string

func (d *date) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if len(s) < len("2006-01-02") {
		return fmt.Errorf("%q is no time", s)
	}
	*d = date(s[:len("2006-01-02")])
	return nil
}

type part struct {
	Workload string
	Rows     []row
}

type row struct {
	Peer   string
	Values map[string]struct{ Median float64 }
}

func read(file string) (*report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: no report of bench -json: %w", file, err)
	}
	return &r, nil
}

// caption describes what was measured on which machine.
func (r *report) caption() string {
	network := "loopback"
	if r.RTT != "" {
		network = "a round trip takes " + r.RTT + " longer"
	}
	return fmt.Sprintf("lockgen %s, %s, %s %s, %d cores, %s; %d × %v s; %s",
		r.Commit, r.Go, r.Engine, r.Version, r.Cores, network, r.Runs, r.Seconds, r.Began)
}
