package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Close ends the calls that are under way, however long an answer may take. Later calls send
// nothing.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	b, f, key := withoutResends(t, proxy.Addr())
	calls := []func() error{
		func() error { _, err := b.Acquire(t.Context(), attempt(key, "A:2")); return err },
		func() error { _, err := b.Acquire(t.Context(), fairAttempt(key+"2", "A:3")); return err },
		func() error { return b.PutNote(t.Context(), "wait/"+key, "x", 10*time.Second) },
	}
	note := calls[2]
	taken(t, b, attempt(newKey(t), "A:1"))
	require.NoError(t, note())
	f.reset()
	proxy.Hole(faultproxy.Requests | faultproxy.Replies)
	ends := make(chan error, len(calls))
	for _, call := range calls {
		go func() { ends <- call() }()
	}
	for _, s := range b.sessions.All() {
		s.Ask() // else the next keep-alive is sent after 20 s
	}
	eventually(t, "all calls are under way", func() bool { return f.count("Txn") == 2 && f.count("sent") > 0 })
	require.NoError(t, b.Close())
	for range calls {
		require.ErrorIs(t, receive(t, "the end of a call", ends), driver.ErrClosed)
	}
	for _, call := range calls {
		require.ErrorIs(t, call(), driver.ErrClosed)
	}
}
