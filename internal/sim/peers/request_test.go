package peers

import (
	"slices"
	"testing"
	"time"
)

func TestSplit(t *testing.T) {
	const two = "*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n"
	words, request, rest := split([]byte(two))
	if !slices.Equal(words, []string{"GET", "a\r\n"}) || string(request)+string(rest) != two {
		t.Fatalf("%q, %q, %q", words, request, rest)
	}
	if words, _, _ = split(rest); !slices.Equal(words, []string{"PING"}) {
		t.Fatalf("%q", words)
	}
	for n := range len(request) {
		if words, _, rest := split([]byte(two[:n])); words != nil || len(rest) != n {
			t.Fatalf("%d bytes of a request are accepted as complete: %q", n, words)
		}
	}
}

func TestLongestGap(t *testing.T) {
	begin := time.Unix(0, 0)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		spans []span
		from  int
		gap   time.Duration
	}{
		{nil, 0, 10 * time.Second},
		{[]span{{at(4), at(5)}}, 5, 5 * time.Second},
		{[]span{{at(4), at(5)}, {at(3), at(9)}}, 0, 3 * time.Second},
		{[]span{{at(2), time.Time{}}}, 0, 2 * time.Second}, // a span without an end
		{[]span{{at(-5), at(1)}, {at(12), at(13)}}, 1, 9 * time.Second},
		{[]span{{at(-5), at(20)}}, 0, 0},
	} {
		from, gap := longestGap(at(0), at(10), c.spans)
		if gap != c.gap || gap > 0 && !from.Equal(at(c.from)) {
			t.Errorf("%v: %v from %v", c.spans, gap, from)
		}
	}
}
