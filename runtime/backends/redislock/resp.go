package redislock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// This file is what a link speaks with a server: RESP2, as
// https://redis.io/docs/latest/develop/reference/protocol-spec/ has it, and of
// that what scripts need. The client library dials and greets; it is not asked
// to carry scripts, because a lock is two of them and nothing else, and what a
// general client does around a command (its pool, its deadlines, its hooks, a
// value boxed for each argument) costs as much time as the command itself.

// reply is what a server answered: a number or, of any other kind, a text.
type reply struct {
	kind   byte  // ':' number; '+' status; '-' error; '$' string, '*' list (not kept); 0 none
	number int64 // of a list, that of its last part
	text   string
}

// refusal is an error that the server answered. It implements redis.Error.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}

func (r reply) err() error {
	if r.kind == '-' {
		return refusal(r.text)
	}
	return nil
}

// String is for errors that say what the server answered.
func (r reply) String() string {
	if r.kind == ':' {
		return strconv.FormatInt(r.number, 10)
	}
	return strconv.Quote(string(r.kind) + r.text)
}

// appendHead appends the beginning of a command of n parts.
func appendHead(b []byte, n int) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

// appendText appends a part of a command.
func appendText(b []byte, s string) []byte {
	b = append(b, '$')
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, '\r', '\n')
	b = append(b, s...)
	return append(b, '\r', '\n')
}

// appendCommand appends a whole command.
func appendCommand(b []byte, parts ...string) []byte {
	b = appendHead(b, len(parts))
	for _, s := range parts {
		b = appendText(b, s)
	}
	return b
}

const (
	// maxReply is the longest line or string of a reply that is read, in bytes:
	// far more than any script answers, or any error says.
	maxReply = 64 << 10
	maxDepth = 4 // of lists in lists
)

var errGarbled = errors.New("the server's reply is not RESP")

// replies reads replies from a connection.
type replies struct {
	from io.Reader
	buf  []byte
	r, w int // what is read and not used is buf[r:w]
}

// next reads one reply. After an error the connection is of no use any more.
func (p *replies) next() (reply, error) { return p.value(0) }

func (p *replies) value(depth int) (reply, error) {
	line, err := p.line()
	if err != nil {
		return reply{}, err
	}
	if len(line) == 0 || depth > maxDepth {
		return reply{}, errGarbled
	}
	r := reply{kind: line[0]}
	switch rest := line[1:]; r.kind {
	case '+', '-':
		r.text = string(rest)
	case ':':
		r.number, err = integer(rest)
	case '$':
		var n int64
		if n, err = integer(rest); err == nil && n >= 0 {
			r.text, err = p.text(n)
		}
	case '*':
		var n int64
		if n, err = integer(rest); err != nil || n > maxReply {
			return reply{}, errGarbled
		}
		for ; n > 0 && err == nil; n-- {
			var part reply
			part, err = p.value(depth + 1)
			r.number = part.number
		}
	default:
		err = fmt.Errorf("%w: it begins with %q", errGarbled, line[:1])
	}
	return r, err
}

// list reads the beginning of a list, whose n replies are read next, or an error.
func (p *replies) list() (r reply, n int, err error) {
	line, err := p.line()
	if err != nil {
		return reply{}, 0, err
	}
	if len(line) == 0 || line[0] != '*' && line[0] != '-' {
		return reply{}, 0, errGarbled
	}
	r.kind, r.text = line[0], string(line[1:])
	if r.kind == '*' {
		n, err = strconv.Atoi(r.text)
	}
	return r, n, err
}

// line returns the next line, without its end; it is good until the next read.
func (p *replies) line() ([]byte, error) {
	from := 0
	for {
		if i := bytes.IndexByte(p.buf[p.r+from:p.w], '\n'); i >= 0 {
			line := p.buf[p.r : p.r+from+i]
			p.r += from + i + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				return line[:n-1], nil
			}
			return nil, errGarbled
		}
		from = p.w - p.r
		if err := p.fill(); err != nil {
			return nil, err
		}
	}
}

// text returns the next n bytes, and reads the line's end behind them.
func (p *replies) text(n int64) (string, error) {
	if n > maxReply {
		return "", fmt.Errorf("%w: a string of %d bytes", errGarbled, n)
	}
	for int64(p.w-p.r) < n+2 {
		if err := p.fill(); err != nil {
			return "", err
		}
	}
	s := string(p.buf[p.r : p.r+int(n)])
	p.r += int(n) + 2
	return s, nil
}

// fill reads what has come, and waits if nothing has.
func (p *replies) fill() error {
	if p.r == p.w {
		p.r, p.w = 0, 0
	}
	if p.w == len(p.buf) {
		if p.r > 0 {
			p.w = copy(p.buf, p.buf[p.r:p.w])
			p.r = 0
		} else if len(p.buf) > maxReply {
			return errGarbled
		} else {
			p.buf = append(p.buf, make([]byte, max(4096, len(p.buf)))...)
		}
	}
	n, err := p.from.Read(p.buf[p.w:])
	p.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// reset forgets what was read: from is another connection now.
func (p *replies) reset() { p.r, p.w = 0, 0 }

func integer(b []byte) (int64, error) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, errGarbled
	}
	return n, nil
}
