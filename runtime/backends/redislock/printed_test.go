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

// printed holds what go-redis would have printed to the process's stderr.
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

// expected are how the lines begin that go-redis prints of a server that is away, by its
// global logger alone.
var expected = []string{
	"sentinel: ", "Unexpected conn[",
	"redis: connection pool: failed to dial", "redis: connection pool: failed to process new connection",
	"push: pre-command drain failed, retiring conn: set tcp", // a connection that Close closes while it is used
	"push: pre-command drain failed, retiring conn: EOF",     // one that a server that stops closes before its first call
}

// verdict returns code, or 1 if go-redis printed something else: whoever locks is told
// by an error, and owns the process's stderr.
func (l *lines) verdict(code int) int {
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
