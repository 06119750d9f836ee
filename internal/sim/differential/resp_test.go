package differential

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// replyTimeout is how long a test waits for a reply.
const replyTimeout = 10 * time.Second

// value is one reply. Unlike a reply of testserver it has the kind: a status is different from a
// string, and both from the nil of a script.
type value struct {
	kind byte   // + - : $ *, or _ for nil
	text string // without the kind; the digits of an integer
	list []value
}

func (v value) String() string {
	switch v.kind {
	case '_':
		return "nil"
	case '$':
		return strconv.Quote(v.text)
	case '*':
		var parts []string
		for _, part := range v.list {
			parts = append(parts, part.String())
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return string(v.kind) + v.text
}

// number returns the value of v if v is an integer.
func (v value) number() (int64, bool) {
	n, err := strconv.ParseInt(v.text, 10, 64)
	return n, v.kind == ':' && err == nil
}

// instant returns the time in v, a reply of TIME.
func (v value) instant() time.Time {
	seconds, _ := strconv.ParseInt(v.list[0].text, 10, 64)
	micros, _ := strconv.ParseInt(v.list[1].text, 10, 64)
	return time.Unix(seconds, micros*int64(time.Microsecond))
}

// withErrors returns v with errors in place of the lists by which together.lua returns errors.
func (v value) withErrors() value {
	for i, part := range v.list {
		if len(part.list) == 1 && part.list[0].kind == '$' {
			v.list[i] = value{kind: '-', text: part.list[0].text}
		}
	}
	return v
}

// wire is a connection to a server. It collects commands and sends them together.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// connect returns a connection to the server at addr. It is closed when the test ends.
func connect(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, replyTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn: conn, in: bufio.NewReader(conn)}
}

// add adds a command to those that were not sent yet.
func (w *wire) add(args ...string) {
	w.out = fmt.Appendf(w.out, "*%d\r\n", len(args))
	for _, a := range args {
		w.out = fmt.Appendf(w.out, "$%d\r\n%s\r\n", len(a), a)
	}
}

// send sends the added commands.
func (w *wire) send() error {
	if err := w.conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	_, err := w.conn.Write(w.out)
	w.out = w.out[:0]
	return err
}

// do sends one command and returns its reply.
func (w *wire) do(args ...string) (value, error) {
	replies, err := w.exchange(args)
	if err != nil {
		return value{}, err
	}
	return replies[0], nil
}

// exchange sends commands together and returns their replies.
func (w *wire) exchange(commands ...[]string) (replies []value, err error) {
	for _, c := range commands {
		w.add(c...)
	}
	if err := w.send(); err != nil {
		return nil, err
	}
	for range commands {
		v, err := w.read()
		if err != nil {
			return nil, err
		}
		replies = append(replies, v)
	}
	return replies, nil
}

// read returns the next reply or push.
func (w *wire) read() (value, error) {
	if w.in.Buffered() == 0 { // a subscriber may have sent its last command long ago
		if err := w.conn.SetReadDeadline(time.Now().Add(replyTimeout)); err != nil {
			return value{}, err
		}
	}
	line, err := w.in.ReadString('\n')
	if err != nil {
		return value{}, err
	}
	if len(line) < 3 {
		return value{}, fmt.Errorf("the reply begins with %q", line)
	}
	v := value{kind: line[0], text: line[1 : len(line)-2]}
	if v.kind != '$' && v.kind != '*' {
		return v, nil
	}
	n, err := strconv.Atoi(v.text)
	switch {
	case err != nil:
		return value{}, fmt.Errorf("the reply begins with %q", line)
	case n < 0:
		return value{kind: '_'}, nil
	case v.kind == '$':
		body := make([]byte, n+2)
		_, err := io.ReadFull(w.in, body)
		v.text = string(body[:n])
		return v, err
	}
	v.text = ""
	for range n {
		part, err := w.read()
		if err != nil {
			return value{}, err
		}
		v.list = append(v.list, part)
	}
	return v, nil
}

// must returns the reply to a command. The reply may be an error.
func must(t *testing.T, w *wire, args ...string) value {
	t.Helper()
	v, err := w.do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expect checks that the reply to a command is an error with this text, or any error if text is "".
func expect(t *testing.T, w *wire, text string, command ...string) {
	t.Helper()
	v := must(t, w, command...)
	if v.kind != '-' || text != "" && v.text != text {
		t.Errorf("%q: %v, want the error %q", command, v, text)
	}
}
