package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tally counts the results of sequences, by description.
type tally map[string]int

// expected lists results that a long run must have. For example, sequences that never grant a lock
// would prove nothing about grants.
var expected = []string{
	"acquire: more than 0", "acquire: held", "acquire: held by a client of Redisson", "acquire: undone", "acquire: CONFLICT ", "acquire: WRONGTYPE", "acquire: NOSCRIPT",
	"release: more than 0", "release: 0", "release: WRONGTYPE",
	"renew: more than 0", "renew: 0",
	"together: more than 0", "together: held", "together: 0", "together: undone", "together: WRONGTYPE", "together: another error",
	"Redisson locks: nil", "Redisson locks: more than 0", "Redisson unlocks: more than 0",
	"message: the lock is free", "message: a grant", "message: a grant for one hold", "message: the lock is wanted", "message: the lock was left to Redisson",
}

// missing returns the expected results that did not happen.
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

// add counts the results of s at miniredis.
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

// reply counts the reply of a script, or each element of the reply.
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

// message counts a message to a subscriber.
func (y tally) message(text string) {
	switch {
	case strings.HasSuffix(text, ` "0"]`):
		y["message: the lock is free"]++
	case strings.Contains(text, ` 2 `) && strings.Contains(text, `"granted `):
		y["message: a grant for one hold"]++
	case strings.Contains(text, `"granted `):
		y["message: a grant"]++
	case strings.Contains(text, `"wanted `):
		y["message: the lock is wanted"]++
	case strings.Contains(text, `"look `):
		y["message: the lock was left to Redisson"]++
	}
}
