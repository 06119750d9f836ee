package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lockRow is one lock as it is printed.
type lockRow struct {
	Key     string      `json:"key"`
	Kind    string      `json:"kind"`
	Holders []holderRow `json:"holders"`
	Waiters *int        `json:"waiters,omitempty"` // nil if the engine does not know
}

type holderRow struct {
	ID      string     `json:"id"`
	Client  string     `json:"client"`
	Side    string     `json:"side,omitempty"` // of a read-write lock
	Name    string     `json:"name,omitempty"`
	Host    string     `json:"host,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Service string     `json:"service,omitempty"`
	Version string     `json:"version,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	TTL     int64      `json:"ttlMillis,omitempty"` // the time that is left
	Token   uint64     `json:"token,omitempty"`
	atMost  bool       // TTL counts from when this process first saw the lease, so the lease may be over
}

// row makes a lockRow of the engine's information about a lock, and adds the processes of its
// holders.
func (b *backend) row(ctx context.Context, info *driver.LockInfo) *lockRow {
	r := &lockRow{Key: info.Key, Kind: kindName(info.Kind), Holders: []holderRow{}}
	if info.Waiters >= 0 {
		r.Waiters = &info.Waiters
	}
	for _, h := range info.Holders {
		one := holderRow{ID: h.ID, Client: h.Client, Name: h.Name, TTL: h.Left.Milliseconds(), Token: h.Token}
		one.atMost = b.clockless && info.Kind != 0 && h.Client == "lockgen"
		if info.Kind == driver.Read|driver.Write {
			one.Side = h.Kind.String()
		}
		if !h.Since.IsZero() {
			since := h.Since.UTC()
			one.Since = &since
		}
		if h.Client == "lockgen" {
			if p := b.process(ctx, h.ID); p != nil {
				one.Host, one.PID, one.Service, one.Version = p.Host, p.PID, p.Service, p.Version
				one.Name = cmp.Or(one.Name, p.Name)
			}
		}
		r.Holders = append(r.Holders, one)
	}
	return r
}

// kindName returns the name of a kind.
func kindName(k driver.Kind) string {
	switch k {
	case 0:
		return "mutex"
	case driver.Read | driver.Write:
		return "read-write"
	}
	return k.String()
}

var columns = []string{"KEY", "KIND", "CLIENT", "HOLDER", "HOST", "PID", "SERVICE", "SINCE", "TTL", "WAITERS", "TOKEN"}

// cells returns the lines of the table for r, one for each holder.
func (r *lockRow) cells() (lines [][]string) {
	waiters := "-"
	if r.Waiters != nil {
		waiters = strconv.Itoa(*r.Waiters)
	}
	for _, h := range r.Holders {
		kind := r.Kind
		if h.Side != "" {
			kind = h.Side
		}
		service := h.Service
		if h.Version != "" {
			service += "@" + h.Version
		}
		lines = append(lines, []string{
			r.Key, kind, h.Client, h.who(), dash(h.Host), number(uint64(h.PID)), dash(service),
			h.since(), h.ttl(), waiters, number(h.Token),
		})
	}
	if len(lines) == 0 {
		lines = append(lines, []string{r.Key, r.Kind, "-", "-", "-", "-", "-", "-", "-", waiters, "-"})
	}
	return lines
}

// who returns the name of a holder, or its ID if it has no name.
func (h *holderRow) who() string { return cmp.Or(h.Name, h.ID, "-") }

func (h *holderRow) since() string {
	if h.Since == nil {
		return "-"
	}
	return h.Since.Local().Format("2006-01-02T15:04:05")
}

func (h *holderRow) left() string {
	if h.TTL <= 0 {
		return "-"
	}
	return (time.Duration(h.TTL) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// ttl returns left for the table, with "<" if it is an upper bound.
func (h *holderRow) ttl() string {
	if h.atMost && h.TTL > 0 {
		return "<" + h.left()
	}
	return h.left()
}

// sentence describes a holder in words.
func (h *holderRow) sentence() string {
	var b strings.Builder
	switch {
	case h.Client != "lockgen":
		b.WriteString("a client of " + h.Client + " ")
	case h.Host == "":
		b.WriteString("a process that is not registered ")
	case h.Service != "":
		b.WriteString(printable(h.Service) + " ")
		if h.Version != "" {
			b.WriteString(printable(h.Version) + " ")
		}
	}
	if h.Name != "" {
		fmt.Fprintf(&b, "%q ", h.Name)
	}
	if h.Host != "" {
		fmt.Fprintf(&b, "on %s, process %d ", printable(h.Host), h.PID)
	}
	fmt.Fprintf(&b, "(%s)", printable(h.ID))
	if h.Since != nil {
		b.WriteString(" since " + h.since())
	}
	switch {
	case h.atMost:
		b.WriteString(", for at most " + h.left() + " more unless it is renewed; this engine does not tell whether it is over already")
	case h.TTL > 0:
		b.WriteString(", for " + h.left() + " more unless it is renewed")
	}
	return b.String()
}

func dash(s string) string { return cmp.Or(s, "-") }

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

// table prints rows, and above them the names of the columns if heading is set.
func table(w io.Writer, rows []*lockRow, heading bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if heading {
		fmt.Fprintln(t, strings.Join(columns, "\t"))
	}
	for _, r := range rows {
		for _, line := range r.cells() {
			for i, cell := range line {
				line[i] = printable(cell)
			}
			fmt.Fprintln(t, strings.Join(line, "\t"))
		}
	}
	return t.Flush()
}

// printable quotes text that would break a line of the table, or confuse the terminal.
func printable(s string) string {
	for _, r := range s {
		if r == ' ' || !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// objects prints rows as JSON, one per line.
func objects(w io.Writer, rows []*lockRow) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, r := range rows {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
