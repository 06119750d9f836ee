package redislock

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// printed records what go-redis would have printed to the process's stderr.
var printed = &lines{}

func init() { redis.SetLogger(printed) }

type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Printf(_ context.Context, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

// expected has the beginnings of the lines that go-redis prints about a server that can't be reached.
// It prints them only by its global logger.
var expected = []string{
	"sentinel: ", "Unexpected conn[",
	"redis: connection pool: failed to dial", "redis: connection pool: failed to process new connection",
	"push: pre-command drain failed, retiring conn: set tcp", // Close closes a connection that is in use
	"push: pre-command drain failed, retiring conn: EOF",     // a server that stops closes a connection before its first call
}

// exitCode returns code, or 1 if go-redis printed another line. Callers must get errors instead, because
// stderr is theirs.
func (l *lines) exitCode(code int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !slices.ContainsFunc(expected, func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			fmt.Fprintln(os.Stderr, "printed by go-redis:", line)
			code = max(code, 1)
		}
	}
	return code
}
