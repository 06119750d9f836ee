package client

import (
	"runtime"
	"strings"
	"time"
)

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// settle is how long goroutines may take to end after their Locker and client were closed.
const settle = 2 * time.Second

// leaked returns the stacks of goroutines of the runtime and of its Redis client
// that have not ended, or "". It is similar to goleak.
func leaked() string {
	for end := time.Now().Add(settle); ; time.Sleep(10 * time.Millisecond) {
		left := others()
		if left == "" || time.Now().After(end) {
			return left
		}
	}
}

func others() string {
	var left []string
	for i, stack := range strings.Split(stacks(), "\n\n") {
		if i == 0 { // the calling goroutine
			continue
		}
		if strings.Contains(stack, "lockgen/lockgen/runtime") || strings.Contains(stack, "redis/go-redis") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}
