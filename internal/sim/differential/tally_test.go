package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tally counts what sequences led to, by words.
type tally map[string]int

// expected is what a long run must have led to: sequences that never grant a lock,
// say, prove nothing of grants.
var expected = []string{
	"acquire: more than 0", "acquire: held", "acquire: held by a client of Redisson", "acquire: undone", "acquire: CONFLICT ", "acquire: WRONGTYPE", "acquire: NOSCRIPT",
	"release: more than 0", "release: 0", "release: WRONGTYPE",
	"renew: more than 0", "renew: 0",
	"together: more than 0", "together: held", "together: 0", "together: undone", "together: WRONGTYPE", "together: another error",
	"Redisson locks: nil", "Redisson locks: more than 0", "Redisson unlocks: more than 0",
	"heard that a lock is free", "heard of a grant", "heard of a grant for one hold", "heard that a lock is wanted", "heard that a lock was left to Redisson",
}

// missing returns what is expected and did not happen.
func (y tally) missing() (missing []string) {
	for _, what := range expected {
		if y[what] == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

func (y tally) String() string {
	var text strings.Builder
	for _, what := range slices.Sorted(maps.Keys(y)) {
		fmt.Fprintf(&text, "\n%6d %s", y[what], what)
	}
	return text.String()
}

// add counts what s led to at miniredis.
func (y tally) add(s step, h heard) {
	name, _, _ := strings.Cut(s.does, ",")
	switch {
	case s.args == nil:
		y["time passes, or the clock is set"]++
		return
	case name == "listen", name == "another client":
		y[name]++
	default:
		y.reply(name, h.reply)
	}
	for _, messages := range h.messages {
		for _, m := range messages {
			y.message(m)
		}
	}
}

// reply counts what a script returned, or each member of that.
func (y tally) reply(name string, v value) {
	if held := isHeld(v); held && v.list[2].text == "1" {
		y[name+": held by a client of Redisson"]++
		return
	} else if held {
		y[name+": held"]++
		return
	}
	if v.kind == '*' {
		for _, part := range v.list {
			y.reply(name, part)
		}
		return
	}
	what := v.text
	n, isNumber := v.number()
	switch {
	case isNumber && n > 0:
		what = "more than 0"
	case isNumber && n < 0:
		what = "less than 0"
	case v.kind == '-':
		what = verdict(v.text)
	case v.kind == '_':
		what = "nil"
	}
	y[name+": "+what]++
}

// message counts what an ear heard.
func (y tally) message(text string) {
	switch {
	case strings.HasSuffix(text, ` "0"]`):
		y["heard that a lock is free"]++
	case strings.Contains(text, ` 2 `) && strings.Contains(text, `"granted `):
		y["heard of a grant for one hold"]++
	case strings.Contains(text, `"granted `):
		y["heard of a grant"]++
	case strings.Contains(text, `"wanted `):
		y["heard that a lock is wanted"]++
	case strings.Contains(text, `"look `):
		y["heard that a lock was left to Redisson"]++
	}
}
