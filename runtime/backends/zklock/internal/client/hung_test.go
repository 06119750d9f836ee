package client

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// S33: a server that no longer reads from the connection does not delay a caller that sends.
func TestSendToAServerThatTakesNothing(t *testing.T) {
	ours, theirs := net.Pipe() // nobody reads
	c := New(Config{Timeout: time.Minute})
	c.begin(ours)
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	begin := time.Now()
	for range 2 {
		c.Send(Exists("/a"), func(Answer) {})
	}
	c.Session()
	require.Less(t, time.Since(begin), time.Second)
}
