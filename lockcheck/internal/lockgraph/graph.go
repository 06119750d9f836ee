// Package lockgraph joins the summaries of packages to one graph: which locks are taken while which
// other locks are held, and by which chain of calls.
package lockgraph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// Graph has the calls and locks of several packages.
type Graph struct {
	Summaries []*facts.Summary
	funcs     map[string]*facts.Func
	impls     map[string][]facts.Bind // by the method of an interface
	edges     []*Edge
	reentries []*Edge
}

// Step is one call on the way from a held lock to the next lock.
type Step struct {
	Call facts.Call
	From *facts.Func
	Bind *facts.Bind // the method that a call of an interface's method reaches
}

// Edge says that the lock To is taken while Held is.
type Edge struct {
	Held, To facts.Lock
	Root     *facts.Func // runs under Held
	Wrapper  *facts.Func // takes To
	Steps    []Step
	Gates    []string // classes of other locks that are held then, each of which has only one lock
	Lost     *Step    // the step that passes a context that owns no lock
}

// Pos returns where the way to the second lock begins.
func (e *Edge) Pos() facts.Position { return e.Steps[0].Call.Pos }

// New joins summaries.
func New(summaries []*facts.Summary) *Graph {
	g := &Graph{Summaries: summaries, funcs: map[string]*facts.Func{}, impls: map[string][]facts.Bind{}}
	for _, s := range summaries {
		for _, f := range s.Funcs {
			g.funcs[f.ID] = f
		}
		for _, b := range s.Binds {
			if !slices.ContainsFunc(g.impls[b.Method], func(o facts.Bind) bool { return o.Impl == b.Impl }) {
				g.impls[b.Method] = append(g.impls[b.Method], b)
			}
		}
	}
	for _, s := range summaries {
		for _, f := range s.Funcs {
			if len(f.Guard) > 0 {
				g.walk(f)
			}
		}
	}
	slices.SortFunc(g.edges, compare)
	slices.SortFunc(g.reentries, compare)
	return g
}

func compare(a, b *Edge) int {
	return cmp.Or(
		cmp.Compare(a.Held.Class(), b.Held.Class()), cmp.Compare(a.To.Class(), b.To.Class()),
		cmp.Compare(len(a.Steps), len(b.Steps)), cmp.Compare(a.Pos().String(), b.Pos().String()),
	)
}

// Edges returns the pairs of different locks.
func (g *Graph) Edges() []*Edge { return g.edges }

// Locks returns all that are annotated, in the order of their positions.
func (g *Graph) Locks() []facts.Lock {
	var out []facts.Lock
	for _, s := range g.Summaries {
		for _, f := range s.Funcs {
			out = append(out, f.Guard...)
		}
	}
	slices.SortFunc(out, func(a, b facts.Lock) int {
		return cmp.Or(cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Key, b.Key))
	})
	return out
}

// walker follows the calls from one annotated function.
type walker struct {
	*Graph
	root  *facts.Func
	seen  map[string]bool
	steps []Step
	gates []string
	past  bool // a lock that blocks was taken earlier on the way

	before struct { // what was held before the wrapper that is being visited took its lock
		gates int
		past  bool
	}
}

func (g *Graph) walk(root *facts.Func) {
	w := &walker{Graph: g, root: root, seen: map[string]bool{}}
	for _, target := range w.targets(root.ID, root.ID) {
		w.visit(target, nil)
	}
}

// targets returns the functions that a call of id can reach: itself, or the methods that implement
// a method of an interface. from is not among them: a wrapper that calls its inner value does not
// call itself.
func (g *Graph) targets(id, from string) []*facts.Bind {
	out := []*facts.Bind{{Impl: id}}
	known := map[string]bool{id: true}
	for i := 0; i < len(out); i++ {
		for _, b := range g.impls[out[i].Impl] {
			if !known[b.Impl] && b.Impl != from {
				known[b.Impl] = true
				out = append(out, &b)
			}
		}
	}
	return out
}

func (w *walker) visit(bind *facts.Bind, lost *Step) {
	f := w.funcs[bind.Impl]
	key := fmt.Sprintf("%s %t %t %q", bind.Impl, lost != nil, w.past, w.gates)
	if f == nil || w.seen[key] {
		return
	}
	w.seen[key] = true
	if len(w.steps) == 0 && f != w.root && len(f.Takes) > 0 {
		return // a wrapper of the interface of which root is a method
	}
	gates, past, before := w.gates, w.past, w.before
	for _, call := range f.Calls {
		w.gates, w.past = gates, past
		if f.Wraps != "" && call.To != f.Wraps { // the fallback runs without the wrapper's lock
			w.gates, w.past = gates[:before.gates:before.gates], before.past
		}
		for _, target := range w.targets(call.To, f.ID) {
			if w.delegates(call) && (call.To == w.root.ID || len(w.takes(target)) > 0) {
				continue // the root's own implementations are visited anyway
			}
			step := Step{Call: call, From: f}
			if target.Method != "" {
				step.Bind = target
			}
			w.follow(step, target, lost)
		}
	}
	w.gates, w.past = gates, past
}

// delegates reports whether a call only passes on a call of the annotated interface to a method of
// that interface, as implementations do that wrap another one. The wrapper is in such a chain once:
// an implementation inside of it does not call it.
func (w *walker) delegates(call facts.Call) bool {
	if len(w.impls[w.root.ID]) == 0 {
		return false // not a method of an interface
	}
	elsewhere := func(to string) bool { return receiver(to) == "" || receiver(to) != receiver(w.root.ID) }
	return !elsewhere(call.To) && !slices.ContainsFunc(w.steps, func(s Step) bool { return elsewhere(s.Call.To) })
}

// receiver returns the type in the name of a method.
func receiver(id string) string {
	if at := strings.LastIndex(id, ")."); at >= 0 {
		return id[:at]
	}
	return ""
}

func (w *walker) takes(bind *facts.Bind) []facts.Lock {
	if f := w.funcs[bind.Impl]; f != nil {
		return f.Takes
	}
	return nil
}

func (w *walker) follow(step Step, target *facts.Bind, lost *Step) {
	w.steps = append(w.steps, step)
	defer func() { w.steps = w.steps[:len(w.steps)-1] }()
	if step.Call.Lost != "" {
		lost = &step
	}
	to := w.funcs[target.Impl]
	if to == nil {
		return
	}
	gates := len(w.gates)
	for _, l := range to.Takes {
		w.take(l, to, lost)
	}
	past := w.past
	w.before.gates, w.before.past = gates, past
	w.past = past || slices.ContainsFunc(to.Takes, func(l facts.Lock) bool { return !l.Try && !l.Read })
	for _, l := range to.Takes {
		if !w.past && l.Literal() && !l.Read && !slices.Contains(w.gates, l.Class()) {
			w.gates = append(w.gates, l.Class())
		}
	}
	w.visit(target, lost)
	w.gates, w.past = w.gates[:gates], past
}

// take records that l is taken while the root's locks are held.
func (w *walker) take(l facts.Lock, wrapper *facts.Func, lost *Step) {
	for _, held := range w.root.Guard {
		e := &Edge{
			Held: held, To: l, Root: w.root, Wrapper: wrapper,
			Steps: slices.Clone(w.steps), Gates: slices.Clone(w.gates), Lost: lost,
		}
		for _, other := range w.root.Guard {
			if other.Literal() && !other.Read && other.Class() != held.Class() {
				e.Gates = append(e.Gates, other.Class())
			}
		}
		switch {
		case held.Class() == l.Class():
			w.reentries = append(w.reentries, e)
		case !w.past: // otherwise the lock between the two has an edge of its own
			w.edges = append(w.edges, e)
		}
	}
}
