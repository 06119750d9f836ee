package main

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/lagmeter"
	"github.com/lockgen/lockgen/internal/testserver"
)

// silent returns the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = at.Close() })
	go func() {
		for {
			c, err := at.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return at.Addr().String()
}

// ran runs the command, and returns its stderr and its exit status.
func ran(args ...string) (said string, status int) {
	var stdout, stderr bytes.Buffer
	status = run(args, strings.NewReader(""), &stdout, &stderr)
	return stderr.String(), status
}

// run waits for the engine's answer no longer than other commands, although it waits for its lock.
func TestRunAtASilentEngine(t *testing.T) {
	for engine, database := range map[string]string{"redis://": "", "etcd://": "", "consul://": "", "zk://": "", "postgres://u@": "/d", "mysql://u@": "/d"} {
		for _, try := range []string{"-try=true", "-try=false"} {
			t.Run(engine+try, func(t *testing.T) {
				t.Parallel()
				meter, begun := lagmeter.Start(), time.Now()
				defer meter.Stop()
				said, status := ran("-url", engine+silent(t)+database, "-timeout", "500ms", "run", try, "k", "--", "true")
				assert.Equal(t, runCode+codeUnavailable, status, said)
				assert.Contains(t, said, "within 500ms (see -timeout)")
				assert.Less(t, time.Since(begun), 4*time.Second+meter.Since(begun))
			})
		}
	}
}

// If a lock could not be released, a message says so, and the command's exit status is kept.
func TestRunThatDoesNotRelease(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	info, err := server.Command(t.Context(), "INFO", "server")
	require.NoError(t, err)
	_, pid, _ := strings.Cut(fmt.Sprint(info), "process_id:")
	pid, _, _ = strings.Cut(pid, "\r\n")
	said, status := ran("-url", "redis://"+server.Addr(), "-timeout", "3s", "run", "k", "--", "sh", "-c", "kill -STOP "+pid+"; exit 7")
	assert.Equal(t, 7, status)
	assert.Contains(t, said, "could not be released")
}
