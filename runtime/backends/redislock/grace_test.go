package redislock

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// connected returns the two ends of a connection. Our end comes from a dialer that untilClosed has wrapped.
func connected(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := newBackend(nil).untilClosed((&net.Dialer{}).DialContext)(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), theirs.Close() })
	return conn, theirs
}

// A process that did not run until its deadline was over still reads an answer that came in time.
func TestAnswerBeforeThePauseIsRead(t *testing.T) {
	t.Parallel()
	ours, theirs := connected(t)
	if _, err := theirs.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := ours.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if n, err := ours.Read(b); err != nil || string(b[:n]) != "answer" {
		t.Errorf("read %q, %v", b[:n], err)
	}
}

// Without an answer, the read fails a moment after the deadline.
func TestNoAnswerIsADeadline(t *testing.T) {
	t.Parallel()
	ours, _ := connected(t)
	begin := time.Now()
	if err := ours.SetReadDeadline(begin); err != nil {
		t.Fatal(err)
	}
	if n, err := ours.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if took := time.Since(begin); took > readGrace+20*time.Millisecond+meter.Since(begin) {
		t.Errorf("it took %v", took)
	}
}

// trickle is a connection on which one byte arrives a moment after each deadline.
type trickle struct {
	net.Conn
	late bool
}

func (c *trickle) SetReadDeadline(time.Time) error { c.late = false; return nil }

func (c *trickle) Read(b []byte) (int, error) {
	if c.late = !c.late; !c.late {
		return 0, os.ErrDeadlineExceeded
	}
	return copy(b, "x"), nil
}

// A server that answers byte by byte is not waited for after the one read that follows the deadline.
func TestOneReadAfterTheDeadline(t *testing.T) {
	t.Parallel()
	ours := withGrace(&trickle{})
	for range 2 { // each answer has a deadline of its own
		if err := ours.SetReadDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		read, err := 0, error(nil)
		for n := 0; err == nil && read < 100; read += n {
			n, err = ours.Read(make([]byte, 1))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || read == 0 {
			t.Errorf("read %d bytes, then %v", read, err)
		}
	}
}

// go-redis asks a socket, and only a socket, whether the server has closed it.
func TestSocketsCanBeAsked(t *testing.T) {
	t.Parallel()
	ours, _ := connected(t)
	if _, ok := ours.(syscall.Conn); !ok {
		t.Errorf("a %T can't be asked", ours)
	}
	piped, other := net.Pipe()
	t.Cleanup(func() { _, _ = piped.Close(), other.Close() })
	if _, ok := withGrace(piped).(syscall.Conn); ok {
		t.Error("a connection that is no socket can be asked")
	}
}
