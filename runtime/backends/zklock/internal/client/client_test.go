package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// What a server sends is read without a panic, and without more memory than it takes.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 127, 255, 255, 255})
	f.Add(binary.BigEndian.AppendUint32(nil, 0xffff_ffff))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range []Request{Create("/a", nil, nil, zk.FlagEphemeralSequential), Delete("/a", AnyVersion), Exists("/a"), Children("/a"), Watch("/a"), Get("/a"), Set("/a", nil, 1),
			Sync("/a"), CreateBeside("/", 1, "/a", nil, nil)} {
			ours, theirs := net.Pipe()
			c := New(Config{Event: func(Event) {}, Silence: time.Minute})
			link := c.begin(ours)
			answers := 0
			require.NoError(t, c.Send(r, func(Answer) { answers++ }))
			_ = c.receive(&decoder{rest: bytes.Clone(body)}, link)
			c.end(errShort)
			require.Equal(t, 1, answers)
			ours.Close()
			theirs.Close()
		}
		_, _ = readFrame(bufio.NewReader(bytes.NewReader(body)), maxAnswer)
	})
}

// server answers the handshake on each connection that it takes, and gives it on.
func server(t *testing.T) (address string, conns <-chan net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	all := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := readFrame(bufio.NewReader(conn), maxHandshake); err == nil {
				var e encoder
				e.int32(0)
				e.int32(10_000)
				e.int64(7)
				e.bytes(make([]byte, 16))
				_, _ = conn.Write(frame(e))
			}
			all <- conn
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), all
}

// The watches of a lost connection are set again before anything else is asked.
func TestWatchesAreSetAgain(t *testing.T) {
	address, conns := server(t)
	ready := make(chan bool, 8)
	c := New(Config{
		Servers: []string{address}, Timeout: 10 * time.Second, Silence: 5 * time.Second, Patience: 5 * time.Second,
		Granted: func(Grant) {}, Ready: func() { ready <- true }, Failed: func(error) {}, Event: func(Event) {}, Logf: func(string, ...any) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-ready
	conn := <-conns
	watched := make(chan Answer, 1)
	require.NoError(t, c.Send(Watch("/a"), func(a Answer) { watched <- a }))
	_, err := readFrame(bufio.NewReader(conn), maxHandshake)
	require.NoError(t, err)
	var e encoder
	e.int32(1)
	e.int64(99) // the transaction that was seen last
	e.int32(0)
	e.bytes(nil)
	_, err = conn.Write(frame(append(e, make([]byte, 68)...)))
	require.NoError(t, err)
	require.NoError(t, (<-watched).Err)
	conn.Close()
	<-ready
	require.NoError(t, c.Send(Exists("/b"), func(Answer) {}))
	r := bufio.NewReader(<-conns)
	body, err := readFrame(r, maxHandshake)
	require.NoError(t, err)
	d := decoder{rest: body}
	d.int32()
	require.EqualValues(t, opSetWatches, d.int32())
	require.EqualValues(t, 99, d.int64())
	require.EqualValues(t, 1, d.int32())
	require.Equal(t, "/a", string(d.bytes()))
	body, err = readFrame(r, maxHandshake)
	require.NoError(t, err)
	d = decoder{rest: body}
	d.int32()
	require.EqualValues(t, opExists, d.int32())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
