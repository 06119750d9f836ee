package main

import (
	"strings"
	"testing"
)

// prints returns a test that prints lines as runtime/backends/backendtest does.
func prints(lines ...string) string {
	return "import \"fmt\"\n\nfunc TestSuite(t *testing.T) { fmt.Fprint(t.Output(), " +
		"\"backendtest\\t" + strings.Join(lines, "\\n\"+\n\"backendtest\\t") + "\\n\") }"
}

func TestConformanceTable(t *testing.T) {
	sources := map[string]string{
		"a": prints(`redis\tExclusion\t5\t0\t0`, `redis\tKeys\t6\t0\t0`),
		"b": prints(`memory\tExclusion\t4\t1\t0`, `memory\tReplies\t2\t0\t2`,
			`memory\tReplies\tmissing\tLate\tnetwork\tthere is none`, `memory\tReplies\tmissing\tLost\tnetwork\tthere is none`),
		"c": prints(`sentinel\tExclusion\t0\t0\t2`, `sentinel\tReplies\t3\t0\t0`, `sentinel\tKeys\t0\t0\t2`,
			`sentinel\tExclusion\tmissing\tMany\tdifference\tas redis`, `sentinel\tExclusion\tmissing\tTwo\tdifference\tas redis`,
			`sentinel\tKeys\tmissing\tAny\tdifference\tas redis`, `sentinel\tKeys\tmissing\tOdd\tconflict\tnone`),
	}
	want := `conformance (checks passed; [n]: see below)
backend   Exclusion  Keys          Replies
redis     5          6             not run
memory    1 FAILED   not run       2 [1]
sentinel  none [2]   none [2] [3]  3
not run: -run chose others, or the tests ended before it
[1] memory: no network: there is none; concerns Replies/Late, Replies/Lost
[2] sentinel: no difference: as redis; concerns Exclusion, Keys/Any
[3] sentinel: no conflict: none; concerns Keys/Odd
3 passed, 0 failed
`
	for _, run := range []string{"first", "from the cache"} {
		out, summary, _ := sum(t, sources)
		for name, text := range map[string]string{"output": out, "summary": summary} {
			if !strings.HasSuffix(text, want) {
				t.Errorf("%s: the %s does not end in\n%s\nbut is\n%s", run, name, want, text)
			}
		}
	}
}

// TestConformanceOrder checks the order of rows, since packages that are tested in parallel print in any order.
func TestConformanceOrder(t *testing.T) {
	lines := [][2]string{
		{"m/b", "backendtest\tmemory\tReplies\t2\t0\t0"},
		{"m/a", "backendtest\tredis\tExclusion\t5\t0\t0"},
		{"m/b", "backendtest\tmemory\tExclusion\t4\t0\t0"},
	}
	want := "backend  Exclusion  Replies\nredis    5          not run\nmemory   4          2\n" + whyNotRun + "\n"
	for range 2 {
		c := conformance{}
		for _, l := range lines {
			c.add(l[0], l[1]+"\n")
		}
		if _, got, _ := strings.Cut(c.String(), "\n"); got != want {
			t.Errorf("of %v:\n%s\nwant\n%s", lines, got, want)
		}
		lines[0], lines[1] = lines[1], lines[0]
	}
}

func TestNoConformanceNoTable(t *testing.T) {
	out, _, _ := sum(t, map[string]string{"a": green})
	if strings.Contains(out, "conformance") {
		t.Errorf("a table although the suite did not run:\n%s", out)
	}
}
