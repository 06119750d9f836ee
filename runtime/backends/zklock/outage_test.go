package zklock

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// A try gets no answer to its create, and then no server can be reached. The try ends by itself.
func TestTryInAnOutage(t *testing.T) {
	t.Parallel()
	_, root, p, c := proxied(t)
	lost := p.Swallow(1, faultproxy.Op("create", root+"/k"))
	got := make(chan error, 1)
	go func() {
		_, err := c.Acquire(context.Background(), c.attempt("k", long))
		got <- err
	}()
	p.Refuse()
	receive(t, "the create", lost)
	select {
	case err := <-got:
		require.ErrorIs(t, err, lock.ErrIndeterminate)
	case <-time.After(3 * reconnectWait):
		t.Error("the try did not end")
	}
	p.Accept()
}

// If the servers accept connections but do not answer, many callers wait no longer than one caller
// would. The end of one caller's context does not cancel a request that other callers share.
func TestSilentServersWhenManyBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backendWith(t, Options{Dialer: func(string, string, time.Duration) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}}, "silent:2181")
		c, begin := newClient(t, b), time.Now()
		brief, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		_, err := c.Acquire(brief, c.attempt("first", long))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var all sync.WaitGroup
		for i := range 5 {
			a := c.attempt(fmt.Sprint("k", i), long)
			all.Go(func() {
				_, err := c.Acquire(t.Context(), a)
				require.ErrorContains(t, err, "silent:2181 gave no session")
			})
		}
		all.Wait()
		require.Less(t, time.Since(begin), 6*second, "the callers waited one after the other")
	})
}

// authenticating returns a Backend whose login is under way, while the proxy holds the login
// request back. The result of an acquire that waits for the login is sent to acquired.
func authenticating(t *testing.T) (b *Backend, login *faultproxy.Held, acquired <-chan error) {
	p := faultproxy.NewZooKeeper(t, testserver.ZooKeeper(t))
	b = New([]string{p.Addr()}, Options{Root: newRoot(t), Auth: []Auth{{Scheme: "digest", Auth: []byte("user:secret")}}})
	c := newClient(t, b)
	login = p.Late(faultproxy.Op("auth"))
	got := make(chan error, 1)
	go func() {
		_, err := c.Acquire(context.Background(), c.attempt("k", long))
		got <- err
	}()
	receive(t, "the login", login.Arrived())
	return b, login, got
}

func TestCloseBesideTheLogin(t *testing.T) {
	t.Parallel()
	b, login, acquired := authenticating(t)
	done := make(chan error, 1)
	go func() { done <- b.Close() }()
	require.ErrorIs(t, receive(t, "the acquire", acquired), lock.ErrClosed)
	ctx, cancel := context.WithTimeout(t.Context(), second)
	defer cancel()
	_ = login.Deliver(ctx) // an error if Close has ended the connection by now
	require.NoError(t, receive(t, "the close", done))
}

// Close does not wait for a server that does not answer the login.
func TestCloseWithoutAnAnswerToTheLogin(t *testing.T) {
	t.Parallel()
	b, _, acquired := authenticating(t)
	begin := time.Now()
	require.NoError(t, b.Close())
	require.ErrorIs(t, receive(t, "the acquire", acquired), lock.ErrClosed)
	require.Less(t, time.Since(begin), 2*second+meter.Since(begin))
}

// answering calls answered when the server has sent something.
type answering struct {
	net.Conn
	answered func()
}

func (a answering) Read(p []byte) (n int, err error) {
	if n, err = a.Conn.Read(p); n > 0 {
		a.answered()
	}
	return n, err
}

// The servers' shortest timeout is raised, one server after the other. A session then gets a longer
// timeout than it requested. That says nothing about the servers' longest timeout.
func TestShortestTimeoutIsRaised(t *testing.T) {
	t.Parallel()
	low, high := testserver.StartZooKeeper(t), testserver.StartZooKeeper(t, "minSessionTimeout=6000", "maxSessionTimeout=60000")
	var dials atomic.Int64
	var raised atomic.Bool
	c := newClient(t, backendWith(t, Options{Root: newRoot(t), Dialer: func(network, _ string, d time.Duration) (net.Conn, error) {
		dials.Add(1)
		if raised.Load() {
			return net.DialTimeout(network, high.Addr(), d)
		}
		conn, err := net.DialTimeout(network, low.Addr(), d)
		return answering{conn, func() { raised.Store(true) }}, err
	}}, low.Addr()))
	for _, d := range []time.Duration{second, 20 * second} {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		l, err := c.Acquire(ctx, c.attempt("k", d))
		cancel()
		require.NoError(t, err, "%v", d)
		free(t, l)
	}
	require.Less(t, dials.Load(), int64(10))
}
