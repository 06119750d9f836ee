package redislock

import (
	"fmt"
	"strconv"
)

// reply is what a server answered to a script: a number or, of any other kind, a text.
type reply struct {
	kind    byte // ':' number; '+' text; '*' list; 0 none
	number  int64
	numbers []int64 // of a list
	value   string  // the text in a list
	text    string
}

// senseless is the error of a reply that no script of ours gives.
func (r reply) senseless() error {
	return fmt.Errorf("the server's answer to a lock script makes no sense: %v", r)
}

func replyOf(value any) reply {
	switch v := value.(type) {
	case int64:
		return reply{kind: ':', number: v}
	case string:
		return reply{kind: '+', text: v}
	case []any:
		r := reply{kind: '*', text: fmt.Sprint(v...)}
		for _, one := range v {
			switch one := one.(type) {
			case int64:
				r.numbers = append(r.numbers, one)
			case string:
				r.value = one
			}
		}
		return r
	}
	return reply{text: fmt.Sprint(value)}
}

// String is for errors that say what the server answered.
func (r reply) String() string {
	if r.kind == ':' {
		return strconv.FormatInt(r.number, 10)
	}
	return strconv.Quote(r.text)
}

// read notes what the server answered to c.
func (c *call) read(value any, err error) {
	switch {
	case err == nil && c.mark.at.Load() == nil:
		c.err = fmt.Errorf("%w: a hook has answered in the server's place", errNotSent)
	case err == nil:
		c.reply, c.err = replyOf(value), nil
	case isAnswer(err):
		c.err = err
	default:
		c.err = c.mark.failed(err)
	}
	if answer := c.copies.answer; answer != nil {
		c.copies.got, c.copies.err = int(answer.Val()), answer.Err()
	}
}
