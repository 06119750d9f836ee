package differential

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockgen/lockgen/internal/testserver"
)

// callsFile has each call of a script in each state of the specification of the Redis
// protocol, spec/RedisCalls.tla. make spec writes it.
const callsFile = "../../../spec/calls.txt"

// specNames are the acquisitions of the specification, in the order of processes.
const specNames = "abd"

// specCall is a call in a state, with its effects according to the specification.
type specCall struct {
	from, op, who, how, deaf    string
	to, answer, granted, wanted string
}

func (c specCall) String() string {
	return fmt.Sprintf("%s %s %s %s %s -> %s %s %s %s", c.from, c.op, c.who, c.how, c.deaf, c.to, c.answer, c.granted, c.wanted)
}

// specGraph has all calls by the state in which they are made.
type specGraph map[string][]specCall

// start is the state of an unused key.
const start = "-0//"

// readGraph reads calls, one per line. Of calls that differ only in names the file has one.
func readGraph(text string) (specGraph, error) {
	seen, g := map[specCall]bool{}, specGraph{}
	for line := range strings.Lines(text) {
		for _, names := range []string{"abd", "adb", "bad", "bda", "dab", "dba"} {
			f := strings.Fields(line)
			if len(f) != 10 || f[5] != "->" {
				return nil, fmt.Errorf("the line %q", line)
			}
			for i := range f {
				if i != 1 && i != 3 && i != 7 {
					f[i] = renamed(f[i], names)
				}
			}
			c := specCall{f[0], f[1], f[2], f[3], f[4], f[6], f[7], f[8], f[9]}
			if !seen[c] {
				seen[c] = true
				g[c.from] = append(g[c.from], c)
			}
		}
	}
	return g, g.whole()
}

// renamed replaces the names in a state or a set. Sets are in the order of the names.
func renamed(text, names string) string {
	text = strings.Map(func(r rune) rune {
		if i := strings.IndexRune(specNames, r); i >= 0 {
			return rune(names[i])
		}
		return r
	}, text)
	set := strings.LastIndexByte(text, '/') + 1
	sorted := []byte(text[set:])
	slices.Sort(sorted)
	return text[:set] + string(sorted)
}

// whole returns an error unless g has every call of every state that a call leads to.
func (g specGraph) whole() error {
	if len(g[start]) == 0 {
		return fmt.Errorf("no call is made in the state %s", start)
	}
	for state, calls := range g {
		parts := strings.Split(state, "/")
		// Two kinds each of attempts, releases and undos, for each set of processes that are deaf;
		// renewals; tombstones that end; time, the end of the queue, a restart.
		if want := 3*2*3<<len(parts[1]) + 3 + len(parts[2]) + 3; len(calls) != want {
			return fmt.Errorf("%d calls are made in the state %s, not %d", len(calls), state, want)
		}
		for _, c := range calls {
			if len(g[c.to]) == 0 {
				return fmt.Errorf("no call is made in the state after %v", c)
			}
		}
	}
	return nil
}

// tour makes every call of g at least once, each in the state that the last call led to.
// It returns the number of different calls.
func (g specGraph) tour(do func(specCall) error) (made int, err error) {
	left := map[string][]specCall{}
	for state, calls := range g {
		left[state] = slices.SortedFunc(slices.Values(calls), func(a, b specCall) int {
			return strings.Compare(a.deaf+a.String(), b.deaf+b.String()) // so that the set of deaf processes rarely changes
		})
	}
	for state := start; ; {
		way := g.way(state, func(s string) bool { return len(left[s]) > 0 })
		if way == nil && len(left[state]) == 0 {
			return made, nil
		}
		for _, c := range way {
			if err := do(c); err != nil {
				return made, err
			}
			state = c.to
		}
		c := left[state][0]
		left[state] = left[state][1:]
		if err := do(c); err != nil {
			return made, err
		}
		state = c.to
		made++
	}
}

// way returns the fewest calls that lead from a state to one that fulfils will. It returns nil
// if there are none, or if the state itself fulfils will.
func (g specGraph) way(from string, will func(string) bool) []specCall {
	before := map[string]specCall{}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if s := queue[0]; will(s) {
			var way []specCall
			for ; s != from; s = before[s].from {
				way = append(way, before[s])
			}
			slices.Reverse(way)
			return way
		}
		for _, c := range g[queue[0]] {
			if _, known := before[c.to]; !known && c.to != from {
				before[c.to] = c
				queue = append(queue, c.to)
			}
		}
	}
	return nil
}

func committedGraph(t *testing.T) (text string, g specGraph) {
	t.Helper()
	b, err := os.ReadFile(callsFile)
	if err != nil {
		t.Fatal(err)
	}
	g, err = readGraph(string(b))
	if err != nil {
		t.Fatalf("%s: %v", callsFile, err)
	}
	return string(b), g
}

// TestGraph makes every call of the specification at a real Redis, and at miniredis too if LOCKGEN_GRAPH
// is set. It compares the replies, the messages and the states. TestSame also checks that both servers
// do the same.
func TestGraph(t *testing.T) {
	_, g := committedGraph(t)
	all := 0
	for _, calls := range g {
		all += len(calls)
	}
	at := map[string]string{"redis": testserver.StartRedis(t).Addr()}
	if os.Getenv("LOCKGEN_GRAPH") != "" {
		mini := miniredis.RunT(t)
		Repair(mini, nil)
		at["miniredis"] = mini.Addr()
	}
	for server, addr := range at {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			p := newPlayer(t, addr)
			made, err := g.tour(p.do)
			if err != nil {
				t.Fatalf("after %d calls: %v", made, err)
			}
			if made != all {
				t.Errorf("%d calls were made of %d", made, all)
			}
			t.Logf("%d states, %d calls, %d with the ways between", len(g), made, p.number)
		})
	}
}

// TestGraphRefuses checks that a change of any part of a call's outcome is found.
func TestGraphRefuses(t *testing.T) {
	text, g := committedGraph(t)
	server := miniredis.RunT(t)
	Repair(server, nil)
	p := newPlayer(t, server.Addr())
	others := func(old string, all ...string) string {
		i := slices.Index(all, old)
		return all[(i+1)%len(all)]
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i < len(lines); i += len(lines) / 40 {
		f := strings.Fields(lines[i])
		c := specCall{f[0], f[1], f[2], f[3], f[4], f[6], f[7], f[8], f[9]}
		lies := map[string]specCall{"none": c}
		for what, change := range map[string]func(*specCall){
			"to":      func(c *specCall) { c.to = others(c.to, "a2//", "b1/d/", "-0//ab") },
			"answer":  func(c *specCall) { c.answer = others(c.answer, "taken", "held", "freed", "not", "renewed", "-") },
			"granted": func(c *specCall) { c.granted = others(c.granted, "a", "b", "-") },
			"wanted":  func(c *specCall) { c.wanted = others(c.wanted, "a", "b", "-") },
		} {
			lie := c
			change(&lie)
			lies[what] = lie
		}
		for what, lie := range lies {
			calls := append([]specCall{{from: "?", op: "restart", who: "-", how: "-", deaf: "-", to: start, answer: "-", granted: "-", wanted: "-"}},
				g.way(start, func(s string) bool { return s == c.from })...)
			for _, c := range calls {
				if err := p.do(c); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.do(lie); (err == nil) != (what == "none") {
				t.Errorf("the call %v, of which %s was changed to %v: %v", c, what, lie, err)
			}
		}
	}
	// In a state that distinguishes the names no line follows from another.
	one := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "b2/da/ab ") })
	for what, part := range map[string][]string{
		"without a line":           slices.Delete(slices.Clone(lines), one, one+1),
		"without its second half":  lines[:len(lines)/2],
		"with a line that differs": append(slices.Clone(lines), lines[one]+"b"),
		"empty":                    nil,
	} {
		if _, err := readGraph(strings.Join(part, "\n")); err == nil {
			t.Errorf("the graph %s was accepted as whole", what)
		}
	}
}
