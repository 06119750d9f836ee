package vnet

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const latency = time.Millisecond

// dial returns both ends of a connection on p.
func dial(t *testing.T, p *Path) (near, far *End, flow *Flow) {
	t.Helper()
	conn, err := p.Dial(t.Context(), func(e *End, f *Flow) bool { far, flow = e, f; return true })
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*End), far, flow
}

// read returns the data that arrives, and when.
func read(t *testing.T, e *End) (string, time.Duration) {
	t.Helper()
	begin := time.Now()
	p := make([]byte, 100)
	n, err := e.Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(p[:n]), time.Since(begin)
}

func write(t *testing.T, e *End, text string) {
	t.Helper()
	if _, err := e.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestMessagesTakeTimeAndArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, _ := dial(t, NewPath(latency, 1, 1))
		for _, text := range []string{"a", "b", "c"} {
			write(t, near, text)
		}
		all := ""
		for len(all) < 3 {
			text, took := read(t, far)
			if all == "" && took < latency {
				t.Errorf("arrived after %v", took)
			}
			all += text
		}
		if all != "abc" {
			t.Errorf("read %q", all)
		}
		_ = near.Close()
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, _, _ := dial(t, NewPath(latency, 1, 1))
		begin := time.Now()
		_ = near.SetReadDeadline(begin.Add(time.Second))
		_, err := near.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestHoleHoldsUpAndHealDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPath(latency, 1, 1)
		near, far, _ := dial(t, p)
		p.Hole(Requests)
		write(t, near, "late")
		write(t, far, "not held back")
		if text, took := read(t, near); text != "not held back" || took > 10*latency {
			t.Errorf("%q after %v", text, took)
		}
		time.AfterFunc(time.Second, p.Heal)
		if text, took := read(t, far); text != "late" || took < 900*time.Millisecond {
			t.Errorf("%q after %v", text, took)
		}
	})
}

func TestMuteLosesReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far, flow := dial(t, NewPath(latency, 1, 1))
		flow.Mute()
		write(t, far, "lost")
		write(t, near, "heard")
		if text, _ := read(t, far); text != "heard" {
			t.Errorf("read %q", text)
		}
		_ = near.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestReset checks that a reset ends both ends, and that the data sent to the server arrives completely or not at all.
func TestReset(t *testing.T) {
	arrived := 0
	for number := range 40 {
		synctest.Test(t, func(t *testing.T) {
			p := NewPath(latency, 1, number)
			near, far, _ := dial(t, p)
			write(t, near, "request")
			p.Reset()
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("its process reads %v", err)
			}
			text, err := io.ReadAll(far)
			if err != nil || string(text) != "" && string(text) != "request" {
				t.Errorf("the server reads %q, %v", text, err)
			}
			arrived += len(text) / len("request")
		})
	}
	if arrived == 0 || arrived == 40 {
		t.Errorf("%d of 40 requests arrived", arrived)
	}
}

// TestKill checks that the data that a process sent before it was killed arrives, and that the server is notified of
// its end unless the host has died.
func TestKill(t *testing.T) {
	for _, host := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPath(latency, 1, 1)
			near, far, _ := dial(t, p)
			write(t, near, "request")
			p.Kill(host)
			_ = far.SetReadDeadline(time.Now().Add(time.Minute))
			text, err := io.ReadAll(far)
			switch {
			case host && (len(text) > 0 || !errors.Is(err, os.ErrDeadlineExceeded)):
				t.Errorf("the server reads %q, %v from a dead host", text, err)
			case !host && (string(text) != "request" || err != nil):
				t.Errorf("the server reads %q, %v", text, err)
			}
			p.Heal() // must not revive the process
			if _, err := p.Dial(context.Background(), func(*End, *Flow) bool { return true }); err == nil {
				t.Error("a dead process has opened a connection")
			}
			p.Forget()
			if _, err := far.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("at the end the server reads %v", err)
			}
		})
	}
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPath(latency, 1, 1)
		p.Refuse()
		if _, err := p.Dial(t.Context(), func(*End, *Flow) bool { return true }); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("refused: %v", err)
		}
		p.Heal()
		if _, err := p.Dial(t.Context(), func(*End, *Flow) bool { return false }); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("not accepted: %v", err)
		}
		p.Hole(Requests)
		begin := time.Now()
		if _, err := p.Dial(t.Context(), func(*End, *Flow) bool { return true }); err == nil || time.Since(begin) != dialLimit {
			t.Errorf("into a hole: %v after %v", err, time.Since(begin))
		}
		p.Heal()
	})
}
