package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// window is the number of holds of a key that are checked together. Two neighbouring windows share one hold.
const window = 100

// trace is what callers observed of one key, in the form for the model.
type trace struct {
	name   string // file, key and the alteration, if any
	events []event
	tokens []int // the ranks of the holds' tokens, from 1 on, since TLC has no large numbers
	bad    bool  // it was altered and must be refused
}

type event struct {
	what string
	hold int
	at   int64
}

// seen is one hold: when it was asked for, and from when until when it was certainly held.
type seen struct {
	token           uint64
	ask, in         int64
	out, left       int64
	releasedInOrder bool
}

// read returns the traces in a file of records and faults, one per line.
func read(name string, in io.Reader) (traces []trace, err error) {
	holds := map[string]map[[2]uint64]*seen{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			history.Record
			Class history.Class  `json:"class"` // of a fault, in a file of the simulation
			Fault *history.Fault `json:"fault"` // in a file of the soak
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if line.Fault != nil {
			line.Class = line.Fault.Class
		}
		if line.Class != "" && line.Class != history.Plain {
			return nil, nil
		}
		if r := line.Record; r.Kind == "" && !history.IsKinded(r.Key) {
			note(holds, r)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(holds)) {
		traces = append(traces, windows(name+" "+key, holds[key])...)
	}
	return traces, lines.Err()
}

// note adds the data of r to its hold.
func note(holds map[string]map[[2]uint64]*seen, r history.Record) {
	id := [2]uint64{uint64(r.Proc), r.Hold}
	h := holds[r.Key][id]
	switch {
	case r.Op == history.Acquire && r.Outcome == history.OK:
		if holds[r.Key] == nil {
			holds[r.Key] = map[[2]uint64]*seen{}
		}
		holds[r.Key][id] = &seen{token: r.Token, ask: r.Call, in: r.Ret}
	case h == nil || r.Outcome != history.OK:
	case r.Op == history.Check:
		h.out = max(h.out, r.Call)
	case r.Op == history.Release:
		h.out, h.left, h.releasedInOrder = max(h.out, r.Call), r.Ret, true
	}
}

// windows returns the traces of the holds of one key, in the order of tokens.
func windows(name string, holds map[[2]uint64]*seen) (traces []trace) {
	var all []*seen
	for _, h := range holds {
		if h.out > h.in { // otherwise it was never certainly held
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b *seen) int { return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.in, b.in)) })
	for first := 0; first < len(all); first += window - 1 {
		part := all[first:min(first+window, len(all))]
		if first > 0 && len(part) == 1 {
			break
		}
		t := trace{name: fmt.Sprintf("%s from hold %d", name, first+1)}
		for i, h := range part {
			rank := i + 1
			if i > 0 && h.token == part[i-1].token {
				rank = t.tokens[i-1]
			}
			t.tokens = append(t.tokens, rank)
			t.events = append(t.events, event{"ask", i + 1, h.ask}, event{"in", i + 1, h.in}, event{"in", i + 1, h.out}, event{"leave", i + 1, h.out})
			if h.releasedInOrder {
				t.events = append(t.events, event{"left", i + 1, h.left})
			}
		}
		slices.SortStableFunc(t.events, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(order[a.what], order[b.what]))
		})
		traces = append(traces, t)
	}
	return traces
}

// order is the order of events at the same instant: in virtual time a release and the next grant may
// be at the same instant, and their real order is not known.
var order = map[string]int{"ask": 0, "leave": 1, "in": 2, "left": 3}

// altered returns copies of t that no mutex allows.
func (t *trace) altered() (bad []trace) {
	change := func(how string, f func(*trace)) {
		c := trace{t.name + ": " + how, slices.Clone(t.events), slices.Clone(t.tokens), true}
		f(&c)
		bad = append(bad, c)
	}
	last := len(t.tokens)
	change("a hold that was not asked for", func(c *trace) {
		c.tokens = append(c.tokens, last+1)
		c.events = append(c.events, event{what: "in", hold: last + 1})
	})
	if last < 2 {
		return bad
	}
	change("the last token is the first", func(c *trace) { c.tokens[last-1] = c.tokens[0] })
	change("the first hold does not end", func(c *trace) {
		c.events = slices.DeleteFunc(c.events, func(e event) bool { return e.hold == 1 && strings.HasPrefix(e.what, "le") })
		c.events = append(c.events, event{what: "in", hold: 1})
	})
	return bad
}

// module returns the text of the TLA+ module Histories, with all traces.
func module(traces []trace) string {
	var events, tokens []string
	for _, t := range traces {
		var es []string
		for _, e := range t.events {
			es = append(es, fmt.Sprintf("<<%q,%d>>", e.what, e.hold))
		}
		events = append(events, "<<"+strings.Join(es, ",")+">>")
		tokens = append(tokens, "<<"+strings.Trim(strings.ReplaceAll(fmt.Sprint(t.tokens), " ", ","), "[]")+">>")
	}
	return fmt.Sprintf("---- MODULE Histories ----\nEvents == <<\n%s\n>>\nTokens == <<\n%s\n>>\n====\n",
		strings.Join(events, ",\n"), strings.Join(tokens, ",\n"))
}
