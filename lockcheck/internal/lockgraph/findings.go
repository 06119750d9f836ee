package lockgraph

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// Finding is a mistake between functions, which may be in several packages.
type Finding struct {
	ID      string // the same in every package in which it is found
	Message string
	Places  []facts.Position // where it can be reported, the best place first
	Notes   []Note
}

// Note is a step of a finding.
type Note struct {
	Pos  facts.Position
	Text string
}

// Order finds locks that are taken in orders which contradict each other.
func (g *Graph) Order() []Finding {
	var out []Finding
	for _, c := range g.Cycles() {
		out = append(out, c.finding())
	}
	known, entered := map[string]bool{}, map[string]bool{}
	for _, r := range g.Reentries() {
		if r.Same == Yes {
			entered[r.way()] = true
		}
	}
	for _, r := range g.Reentries() {
		f, ok := r.finding()
		if r.Same == No && entered[r.way()] { // the call takes another lock of the root
			continue
		}
		if ok && !known[f.ID] {
			known[f.ID] = true
			out = append(out, f)
		}
	}
	return out
}

func (c Cycle) finding() Finding {
	var orders []string
	f := Finding{ID: "cycle " + c.ID()}
	for i, e := range c {
		orders = append(orders, fmt.Sprintf("%q before %q", e.Held.Key, e.To.Key))
		f.Places = append(f.Places, e.places()...)
		f.Notes = append(f.Notes, e.notes(fmt.Sprintf("path %d: ", i+1))...)
	}
	f.Message = fmt.Sprintf("locks are taken in orders that contradict each other: %s. %s",
		strings.Join(orders, ", "), c.paths())
	return f
}

func (c Cycle) paths() string {
	var out []string
	for i, e := range c {
		out = append(out, fmt.Sprintf("Path %d: %s", i+1, e))
	}
	return strings.Join(out, "; ")
}

// String describes the way from the held lock to the other: the holder, each call with its
// place, and the lock that is taken at the end.
func (e *Edge) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s holds %q", e.Root.Name, e.Held.Key)
	for _, s := range e.Steps {
		if s.From.Wraps != "" && s.From.Wraps == s.Call.To {
			continue // a step from a wrapper to the function that it wraps
		}
		fmt.Fprintf(&b, " -> %s", s)
	}
	fmt.Fprintf(&b, ", which locks %q", e.To.Key)
	return b.String()
}

func (s Step) String() string {
	text := fmt.Sprintf("%s (%s)", s.Call.Name, short(s.Call.Pos))
	if s.Bind != nil {
		text += fmt.Sprintf(" = %s (%s)", s.Bind.Type, short(s.Bind.Pos))
	}
	return text
}

// short returns a place without its folder.
func short(p facts.Position) string {
	return fmt.Sprintf("%s:%d", p.File[strings.LastIndexAny(p.File, `/\`)+1:], p.Line)
}

// way describes the calls from the root to the lock, which are the same for all locks of the root.
func (e *Edge) way() string {
	return fmt.Sprint(e.Root.ID, e.places(), e.Wrapper.ID, e.To.Pos, e.To.Key)
}

func (e *Edge) places() []facts.Position {
	var out []facts.Position
	for _, s := range e.Steps {
		out = append(out, s.Call.Pos)
	}
	for _, s := range e.Steps {
		if s.Bind != nil {
			out = append(out, s.Bind.Pos)
		}
	}
	return out
}

func (e *Edge) notes(prefix string) []Note {
	out := []Note{{e.Held.Pos, fmt.Sprintf("%s%s holds %q", prefix, e.Root.Name, e.Held.Key)}}
	for _, s := range e.Steps {
		if s.From.Wraps != "" && s.From.Wraps == s.Call.To {
			continue
		}
		out = append(out, Note{s.Call.Pos, prefix + "calls " + s.Call.Name})
		if s.Bind != nil {
			out = append(out, Note{s.Bind.Pos, prefix + "which is that of " + s.Bind.Type})
		}
	}
	return append(out, Note{e.To.Pos, fmt.Sprintf("%slocks %q", prefix, e.To.Key)})
}

// finding returns the mistake in taking a lock of the same class as the held one. It reports false
// if nothing is certain.
func (r Reentry) finding() (Finding, bool) {
	f := Finding{Places: r.places(), Notes: r.notes("")}
	switch {
	case r.Lost != nil:
		return f, false // lostctx reports it
	case r.Held.Write && r.To.Read && r.Same == Yes: // the root holds the write side of the same lock
		return f, false
	case r.Held.Read && r.To.Write && r.Same != No:
		f.ID = "upgrade "
		f.Message = fmt.Sprintf("%q is held for reading and asked for again for writing: %s. It fails with ErrDeadlock at once; take it for writing first", r.Held.Key, r)
	case r.Held.Read && r.To.Read && r.Same != Yes || r.To.Try:
		return f, false
	case r.Same == No:
		f.ID = "twice "
		f.Message = fmt.Sprintf("%q is held while %q is taken with another value: %s. Two calls with the values swapped wait for each other; put both directives on one method, which takes them in one order", r.Held.Key, r.To.Key, r)
	case r.Same == Yes && !r.To.Reentrant && len(r.Steps) == 1:
		f.ID = "self "
		f.Message = fmt.Sprintf("%q is held already and %s is not reentrant: %s. It fails with ErrDeadlock at once; add reentrant to its directive", r.To.Key, r.Wrapper.Name, r)
	default:
		return f, false
	}
	f.ID += r.Pos().String() + r.Wrapper.ID
	return f, true
}

// Lost finds calls that ask for a lock that their own chain of calls holds, under a context that
// does not own it.
func (g *Graph) Lost() []Finding {
	var out []Finding
	known := map[string]bool{}
	for _, r := range g.Reentries() {
		if r.Lost == nil || r.Same == No || r.To.Try || r.Held.Read && r.To.Read {
			continue
		}
		f := Finding{
			ID:     "lost " + r.Lost.Call.Pos.String(),
			Places: slices.Concat([]facts.Position{r.Lost.Call.Pos}, r.places()), Notes: r.notes(""),
			Message: fmt.Sprintf("%s does not own %q, which is held here and asked for again: %s. It waits for itself; pass the ctx that the method got",
				r.Lost.Call.Lost, r.Held.Key, r),
		}
		if !known[f.ID] {
			known[f.ID] = true
			out = append(out, f)
		}
	}
	return out
}

// ReportAll reports each finding in the first package that sees all of it: no import of the package
// sees all. A driver that joins all packages reports findings itself.
func ReportAll(pass *analysis.Pass, ix *facts.Index, find func(*Graph) []Finding) {
	if ix.Whole {
		return
	}
	for _, f := range find(New(ix.Summaries)) {
		report(pass, ix, f, find)
	}
}

func report(pass *analysis.Pass, ix *facts.Index, f Finding, find func(*Graph) []Finding) {
	for _, known := range ix.Imported {
		if slices.ContainsFunc(find(New(known)), func(o Finding) bool { return o.ID == f.ID }) {
			return
		}
	}
	at := slices.IndexFunc(f.Places, func(p facts.Position) bool { return facts.In(pass, p) })
	pos := pass.Files[0].Package
	if at >= 0 {
		pos = ix.Pos(f.Places[at])
	}
	for _, p := range f.Places {
		if ix.Ignored(pass.Analyzer.Name, p) {
			return
		}
	}
	d := analysis.Diagnostic{Pos: pos, Category: pass.Analyzer.Name, Message: f.Message}
	for _, note := range f.Notes {
		d.Related = append(d.Related, ix.Related(note.Pos, note.Text)...)
	}
	ix.Report(pass, d)
}
