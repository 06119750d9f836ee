package redislock

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed together.lua
var togetherSource string

// togetherScript is what calls that wait at the same time are sent with: one
// command for all. Not in a Cluster, where a command's keys share a slot, nor to who
// does not say that it has all keys: see hasAllKeys.
var togetherScript = newScript("local call = redis.call\n" + askTime +
	function("acquire", strings.Replace(acquireSource, askTime, "", 1)) +
	function("release", releaseSource) + togetherSource)

// askTime is how acquire.lua asks for the time, which is the same for all locks.
const askTime = "local time = call('TIME')\nlocal micros = time[1] * 1000000 + time[2]\n"

// joins reports whether c may share a command with others. What asks for more than
// its script's answer goes by itself, and so does what was refused with others.
func (c *call) joins() bool {
	return (c.script == acquireScript || c.script == releaseScript) &&
		!c.probe && !c.asking && !c.alone && c.copies.want == 0
}

// arrange puts those of calls that may share a command last, and says how many
// they are: two at least, or none.
func (s *link) arrange(calls []*call) (arranged []*call, together int) {
	if !s.single {
		return calls, 0
	}
	arranged = make([]*call, 0, len(calls))
	var last []*call
	for _, c := range calls {
		if c.joins() {
			last = append(last, c)
		} else {
			arranged = append(arranged, c)
		}
	}
	arranged = append(arranged, last...)
	if len(last) < 2 {
		return arranged, 0
	}
	return arranged, len(last)
}

// appendTogether appends the command that does all of calls.
func appendTogether(b []byte, calls []*call) []byte {
	whole, nkeys, nargs := false, 0, 0
	shape := make([]byte, 0, 3*len(calls))
	for _, c := range calls {
		what := byte('a')
		if c.script == releaseScript {
			what = 'r'
		}
		shape = append(shape, what, byte('0'+c.nkeys), byte('0'+c.nargs))
		nkeys, nargs, whole = nkeys+c.nkeys, nargs+c.nargs, whole || c.whole
	}
	b = appendHead(b, 4+nkeys+nargs)
	b = togetherScript.appendName(b, whole)
	b = appendText(b, strconv.Itoa(nkeys))
	for _, c := range calls {
		for _, k := range c.keys[:c.nkeys] {
			b = appendText(b, k)
		}
	}
	b = appendText(b, string(shape))
	for _, c := range calls {
		for _, a := range c.args[:c.nargs] {
			b = appendText(b, a)
		}
	}
	return b
}

// readTogether reads the answers of calls that were one command. A server that
// refuses it has done none of them; that may be for one of their keys, or for their
// number, so each is to go by itself.
func (s *link) readTogether(calls []*call) error {
	refusal, n, err := s.replies.list()
	switch {
	case err == nil && refusal.kind == '-':
		if isCrossSlot(refusal.err()) {
			s.isSingle(false)
		}
		for _, c := range calls {
			c.reply, c.alone = refusal, !isUnknownScript(refusal.err())
		}
		return nil
	case err == nil && n != len(calls):
		err = errGarbled
	}
	for i := 0; err == nil && i < n; i++ {
		calls[i].reply, err = s.replies.value(1)
	}
	if err != nil {
		return s.broken(err)
	}
	return nil
}
