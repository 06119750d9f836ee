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

// patience is how long a test waits for a reply before it gives up.
const patience = 10 * time.Second

// value is one reply. Unlike testserver's it keeps the kind: a status is not a
// string, and a script's nil is neither.
type value struct {
	kind byte   // + - : $ *, or _ for nil
	text string // without the kind; of an integer its digits
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

// number returns the integer that v is, and whether it is one.
func (v value) number() (int64, bool) {
	n, err := strconv.ParseInt(v.text, 10, 64)
	return n, v.kind == ':' && err == nil
}

// instant returns the time that v is the reply of TIME for.
func (v value) instant() time.Time {
	seconds, _ := strconv.ParseInt(v.list[0].text, 10, 64)
	micros, _ := strconv.ParseInt(v.list[1].text, 10, 64)
	return time.Unix(seconds, micros*int64(time.Microsecond))
}

// withErrors returns v with the errors in it that together.lua has as lists of their text.
func (v value) withErrors() value {
	for i, part := range v.list {
		if len(part.list) == 1 && part.list[0].kind == '$' {
			v.list[i] = value{kind: '-', text: part.list[0].text}
		}
	}
	return v
}

// wire is a connection to a server, on which commands are collected and sent together.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// connect returns a connection to the server at addr, for as long as t runs.
func connect(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn: conn, in: bufio.NewReader(conn)}
}

// add puts a command behind those that were not sent yet.
func (w *wire) add(args ...string) {
	w.out = fmt.Appendf(w.out, "*%d\r\n", len(args))
	for _, a := range args {
		w.out = fmt.Appendf(w.out, "$%d\r\n%s\r\n", len(a), a)
	}
}

// send sends what was added.
func (w *wire) send() error {
	if err := w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
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

// read returns the next reply, or what was pushed.
func (w *wire) read() (value, error) {
	if w.in.Buffered() == 0 { // who only listens may have sent its last command long ago
		if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
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

// must returns what a command is answered; it may be an error.
func must(t *testing.T, w *wire, args ...string) value {
	t.Helper()
	v, err := w.do(args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// expect checks that a command is answered by an error of this text, or any if it is "".
func expect(t *testing.T, w *wire, text string, command ...string) {
	t.Helper()
	v := must(t, w, command...)
	if v.kind != '-' || text != "" && v.text != text {
		t.Errorf("%q: %v, want the error %q", command, v, text)
	}
}
