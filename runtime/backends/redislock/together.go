package redislock

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed together.lua
var togetherSource string

// togetherScript does many calls by one command; in a Cluster, those of one slot. It is sent
// only to a server that says that it has all keys: see hasAllKeys.
var togetherScript = newScript(0, grantSource,
	function("acquire", acquireSource), function("release", releaseSource), function("renew", renewSource), togetherSource)

// joins reports whether c may share a command with others. A call that needs more than
// its script's answer is sent alone, and so is one that was refused with others. One
// with a single key may be for a slot that moves, whose other keys are elsewhere.
func (c *call) joins() bool {
	return c.script.letter != 0 && !c.asking && !c.alone && c.replicas.want == 0 && c.nkeys > 1
}

// together divides calls into groups of at least two that share a command, and those that are
// sent alone.
func (b *batcher) together(calls []*call) (groups [][]*call, each []*call) {
	if len(calls) < 2 || !b.bySlot && !b.allKeys.Load() {
		return nil, calls
	}
	bySlot := map[int][]*call{}
	for _, c := range calls {
		switch {
		case !c.joins():
			each = append(each, c)
		case b.bySlot:
			of := slot(c.keys[0])
			bySlot[of] = append(bySlot[of], c)
		default:
			bySlot[0] = append(bySlot[0], c)
		}
	}
	for _, group := range bySlot {
		if len(group) < 2 {
			each = append(each, group...)
		} else {
			groups = append(groups, group)
		}
	}
	return groups, each
}

// togetherCommand returns the command that does all of calls.
func (b *batcher) togetherCommand(calls []*call) *redis.Cmd {
	eval, nkeys, nargs := false, 0, 0
	shape := make([]byte, 0, 3*len(calls))
	for _, c := range calls {
		shape = append(shape, c.script.letter, byte('0'+c.nkeys), byte('0'+c.nargs))
		nkeys, nargs, eval = nkeys+c.nkeys, nargs+c.nargs, eval || c.eval
	}
	mark := &sentMark{}
	all := togetherScript.at(b.bySlot).command(make([]any, 0, 4+nkeys+nargs), mark, eval, nkeys)
	for _, c := range calls {
		c.mark = mark
		for _, k := range c.keys[:c.nkeys] {
			all = append(all, k)
		}
	}
	all = append(all, string(shape))
	for _, c := range calls {
		for _, a := range c.args[:c.nargs] {
			all = append(all, a)
		}
	}
	return redis.NewCmd(context.Background(), all...)
}

// answerError is an error that counts as the server's: see isAnswer.
type answerError string

func (e answerError) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (answerError) RedisError() {}

// oneOfTogether returns what one of several calls was answered: see together.lua.
func oneOfTogether(answer any) (any, error) {
	if list, ok := answer.([]any); ok && len(list) == 1 {
		if text, ok := list[0].(string); ok {
			return nil, answerError(text)
		}
	}
	return answer, nil
}

// readTogether reads the answers of calls that were one command. It reports whether
// the server has refused it, and so done none of them: perhaps because of one of their
// keys, or of their number, so each must be sent alone.
func (b *batcher) readTogether(calls []*call, cmd *redis.Cmd) (refused bool) {
	answers, err := cmd.Slice()
	switch {
	case err == nil && len(answers) != len(calls):
		err = fmt.Errorf("the server's answer to %d lock scripts makes no sense: %v", len(calls), answers)
	case isUnknownScript(err) && !calls[0].eval:
		for _, c := range calls {
			c.eval = true
		}
		return true
	case err != nil && isAnswer(err):
		if isCrossSlot(err) {
			b.allKeys.Store(false)
		}
		for _, c := range calls {
			c.alone, c.eval = true, false
		}
		return true
	}
	for i, c := range calls {
		switch {
		case err != nil:
			c.read(nil, err)
		default:
			c.read(oneOfTogether(answers[i]))
		}
	}
	return false
}

// slot returns the Redis Cluster slot of key: CRC16 (XMODEM) of its hash tag,
// modulo 16384, as the Cluster specification has it.
func slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if n := strings.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
