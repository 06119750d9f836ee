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

	"github.com/lockgen/lockgen/runtime/driver"
)

// Any bytes from a server are read without a panic, and without more memory than they need.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 127, 255, 255, 255})
	f.Add(binary.BigEndian.AppendUint32(nil, 0xffff_ffff))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range []Request{Create("/a", nil, nil, zk.FlagEphemeralSequential), Delete("/a", AnyVersion), Exists("/a"), Children("/a"), Observe(&Watch{Path: "/a", Told: func() {}}), Get("/a"), Set("/a", nil, 1), Sync("/a")} {
			ours, theirs := net.Pipe()
			c := New(Config{Timeout: time.Minute})
			c.begin(ours)
			answers := 0
			c.Send(r, func(Answer) { answers++ })
			_ = c.receive(&decoder{rest: bytes.Clone(body)})
			c.end(errShort)
			require.Equal(t, 1, answers)
			ours.Close()
			theirs.Close()
		}
		_, _ = readFrame(bufio.NewReader(bytes.NewReader(body)), maxAnswer)
	})
}

// server accepts connections, answers the handshake on each, and sends it to conns.
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

// When the connection ends, each watch that was not given up is notified once.
func TestWatchesEndWithTheConnection(t *testing.T) {
	address, conns := server(t)
	ready := make(chan bool, 8)
	c := New(Config{
		Servers: []string{address}, Dial: net.DialTimeout, Timeout: 15 * time.Second,
		Granted: func(time.Duration, driver.Instant) {}, Tried: func(error) { ready <- true },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-ready
	conn := <-conns
	told, watched := make(chan int32, 8), make(chan Answer, 8)
	all := []*Watch{}
	for i := range 2 {
		w := &Watch{Path: "/a"}
		w.Told = func() { told <- w.state.Load() }
		c.Send(Observe(w), func(a Answer) { watched <- a })
		_, err := readFrame(bufio.NewReader(conn), maxHandshake)
		require.NoError(t, err)
		var e encoder
		e.int32(int32(i + 1))
		e.int64(99)
		e.int32(0)
		e.bytes(nil)
		_, err = conn.Write(frame(append(e, make([]byte, 68)...)))
		require.NoError(t, err)
		require.NoError(t, (<-watched).Err)
		all = append(all, w)
	}
	c.Unwatch(all[1])
	require.Equal(t, []string{"/a"}, c.Watched())
	conn.Close()
	<-ready
	require.Len(t, told, 1)
	require.EqualValues(t, Changed, <-told)
	require.True(t, all[1].Is(Standing), "Unwatch ended this watch, so it must not be notified")
	require.Empty(t, told)
	require.Empty(t, c.Watched())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
