package redislock

import (
	"context"
	"fmt"
	"os"
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

// verdict returns code, or 1 if, when some server was away, go-redis printed
// that: whoever locks is told by an error, and owns the process's stderr. What
// go-redis says of Sentinels has no other switch than its global logger.
func (l *lines) verdict(code int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		// Nor has what it says of a connection that is cut while it greets.
		if !strings.HasPrefix(line, "sentinel: ") && !strings.HasPrefix(line, "Unexpected conn[") {
			fmt.Fprintln(os.Stderr, "printed by go-redis:", line)
			code = max(code, 1)
		}
	}
	return code
}
