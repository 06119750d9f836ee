package delay

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// echo returns the address of a server that sends back what it receives.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, rtt time.Duration) net.Conn {
	t.Helper()
	p, err := New(echo(t), rtt)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestARoundTripIsNoShorter(t *testing.T) {
	const rtt = 2 * time.Millisecond
	conn := dial(t, rtt)
	var took []time.Duration
	for range 50 {
		begin := time.Now()
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	if took[0] < rtt {
		t.Errorf("the shortest took %v, want %v or more", took[0], rtt)
	}
	t.Logf("median %v, longest %v", took[25], took[49])
}

// TestManyChunksAreUnderWayAtOnce checks that a delay does not limit throughput: chunks that are sent
// together arrive together, complete and in order, and the end of the stream arrives after them.
func TestManyChunksAreUnderWayAtOnce(t *testing.T) {
	const rtt, n = 400 * time.Millisecond, 200
	conn := dial(t, rtt)
	begin := time.Now()
	var sent []byte
	for i := range n {
		part := bytes.Repeat([]byte{byte(i)}, 1000)
		sent = append(sent, part...)
		if _, err := conn.Write(part); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond / 4) // so that each write is a chunk of its own
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back, or different bytes: %v", len(got), len(sent), err)
	}
	if took := time.Since(begin); took > n*rtt/4 { // one after the other they take n*rtt/2, however busy the machine is
		t.Errorf("%d chunks took %v: they wait for each other", n, took)
	}
}
