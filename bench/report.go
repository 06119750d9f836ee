package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

// report is the result of the program, as -json writes it.
type report struct {
	Began    time.Time
	Took     string
	Commit   string // of lockgen, as git describes it
	Go       string
	Cores    int
	Engine   string
	Version  string // of the server, if the server tells it
	Runs     int
	Seconds  float64
	Long     bool
	TTL      string
	RTT      string // what -rtt adds to a round trip; empty: loopback
	Measured string // what was really added, if the engine is Redis
	Peers    []peerNote
	Parts    []*part
	Targets  []verdict
	Skipped  []string // workloads that were not measured, with the reason
	Problems []string
}

// peerNote is a peer's name and configuration.
type peerNote struct{ Name, About string }

// part is the result of one workload.
type part struct {
	Workload string
	About    string
	Rows     []*row

	columns, summary []column
}

// row is the result of one peer in one workload.
type row struct {
	Peer   string
	Runs   []metrics
	Values map[string]value // by column; empty if no run succeeded

	rival bool
}

// shortLength is the length in seconds below which a run is short: it cuts off long waits.
const shortLength = 2

// value summarizes the values of one column over all runs.
type value struct{ Median, Min, Max float64 }

func (b *bench) newReport(ctx context.Context) (*report, error) {
	r := &report{
		Began: time.Now(), Engine: b.engine.Name, Go: runtime.Version(), Cores: runtime.NumCPU(),
		Runs: b.runs, Seconds: b.length.Seconds(), Long: b.long, TTL: b.ttl.String(),
	}
	r.Commit, _ = output(ctx, ".", "git", "describe", "--always", "--dirty") // empty without git
	if b.rtt > 0 {
		r.RTT = strings.Replace(b.rtt.String(), "µ", "u", 1) // as on the command line
	}
	if b.server != nil {
		info, err := b.server.Info(ctx, "server").Result()
		if err != nil {
			return nil, fmt.Errorf("reach the server: %w", err)
		}
		r.Version = infoField(info, "redis_version")
	}
	if b.server != nil && b.rtt > 0 {
		delayed, err := roundTrip(ctx, b.via)
		direct, errDirect := roundTrip(ctx, b.addr)
		if err := errors.Join(err, errDirect); err != nil {
			return nil, err
		}
		r.Measured = duration(float64(delayed - direct))
	}
	for _, p := range b.peers {
		r.Peers = append(r.Peers, peerNote{p.Name, p.About})
	}
	return r, nil
}

// roundTrip returns the median time of a round trip to the Redis at addr.
func roundTrip(ctx context.Context, addr string) (time.Duration, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var took histogram.Histogram
	for range 100 {
		begin := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		took.Add(time.Since(begin))
	}
	return took.Quantile(0.5), nil
}

func (r *report) begin(w *workload, joined []*peers.Peer) *part {
	part := &part{Workload: w.name, About: w.about, columns: w.columns, summary: w.summary}
	for _, p := range joined {
		part.Rows = append(part.Rows, &row{Peer: p.Name, rival: p.Rival})
	}
	r.Parts = append(r.Parts, part)
	return part
}

func (pt *part) add(p *peers.Peer, m metrics) {
	row := pt.row(p.Name)
	row.Runs = append(row.Runs, m)
}

func (pt *part) row(peer string) *row {
	for _, row := range pt.Rows {
		if row.Peer == peer {
			return row
		}
	}
	return nil
}

// sum computes the values of all rows.
func (pt *part) sum() {
	for _, row := range pt.Rows {
		row.Values = map[string]value{}
		if len(row.Runs) == 0 {
			continue
		}
		for name := range row.Runs[0] {
			var all []float64
			for _, m := range row.Runs {
				all = append(all, m[name])
			}
			slices.Sort(all)
			row.Values[name] = value{median(all), all[0], all[len(all)-1]}
		}
	}
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (r *report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var text strings.Builder
	r.head(&text)
	text.WriteString("\n## Summary\n\n")
	r.summary(&text)
	for _, pt := range r.Parts {
		pt.table(&text)
	}
	r.targets(&text)
	list(&text, "Skipped", r.Skipped)
	list(&text, "Problems", r.Problems)
	_, err := io.WriteString(out, text.String())
	return err
}

func list(text *strings.Builder, title string, all []string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(text, "\n## %s\n\n", title)
	for _, one := range all {
		fmt.Fprintf(text, "- %s\n", strings.ReplaceAll(one, "\n", "; "))
	}
}

// conditions describes what was measured, on which machine and how.
func (r *report) conditions() string {
	network := "loopback"
	if r.RTT != "" {
		network = "over a network: a round trip takes " + r.RTT + " longer"
		if r.Measured != "" {
			network += " (measured: " + r.Measured + ")"
		}
	}
	return fmt.Sprintf("lockgen at %s, %s, %d cores, %s %s, %s; medians of %d runs of %v s; leases of %s; %s",
		r.Commit, r.Go, r.Cores, r.Engine, r.Version, network, r.Runs, r.Seconds, r.TTL, r.Began.Format("2006-01-02"))
}

func (r *report) head(text *strings.Builder) {
	fmt.Fprintf(text, "# Locks on %s\n\n%s; (min..max); %s long.\n\n", r.Engine, r.conditions(), r.Took)
	if r.Seconds < shortLength {
		fmt.Fprintf(text, "Runs of less than %v s cut off the longest waits of those that poll.\n\n", shortLength)
	}
	for _, p := range r.Peers {
		fmt.Fprintf(text, "- %s: %s\n", p.Name, p.About)
	}
}

func (pt *part) table(text *strings.Builder) {
	fmt.Fprintf(text, "\n## %s\n\n%s\n\n| peer |", pt.Workload, pt.About)
	for _, c := range pt.columns {
		fmt.Fprintf(text, " %s |", c.title)
	}
	fmt.Fprintf(text, "\n|---|%s\n", strings.Repeat("---|", len(pt.columns)))
	for _, row := range pt.Rows {
		fmt.Fprintf(text, "| %s |", row.Peer)
		for _, c := range pt.columns {
			fmt.Fprintf(text, " %s |", row.cell(c))
		}
		text.WriteString("\n")
	}
}

func (r *row) cell(c column) string {
	v, ok := r.Values[c.name]
	switch {
	case len(r.Runs) == 0:
		return "failed"
	case !ok:
		return "–"
	}
	cell := c.show(v.Median)
	if low, high := c.show(v.Min), c.show(v.Max); low != high {
		cell += fmt.Sprintf(" (%s..%s)", low, high)
	}
	return cell
}

func (r *report) targets(text *strings.Builder) {
	if len(r.Targets) == 0 {
		return
	}
	text.WriteString("\n## Targets\n\n| workload | target | measured | |\n|---|---|---|---|\n")
	for _, v := range r.Targets {
		met := "met"
		switch {
		case v.NeedLong:
			met = "needs -long"
		case !v.Met:
			met = "**short**"
		}
		fmt.Fprintf(text, "| %s | %s | %s | %s |\n", v.Workload, v.Target, v.Measured, met)
	}
}
