package redislock

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// If processes wait for each other in a ring, one of them gets an error within a second, which
// names the others. The others continue.
func TestProcessesThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	peers := []*peer{startPeer(t, addr), startPeer(t, addr), startPeer(t, addr)}
	for n := 2; n <= len(peers); n++ {
		key := newKey(t)
		ring := peers[:n]
		at := func(i int) string { return fmt.Sprint(key, i%n) }
		for i, p := range ring {
			p.must("acquire %s 20s", at(i))
		}
		answers := make(chan string, n)
		began := time.Now()
		for i, p := range ring {
			p.tell("inside %s %s", at(i), at(i+1))
			go func() {
				answers <- <-p.answers
				_, _ = fmt.Fprintf(p.in, "release %s\n", at(i))
			}()
		}
		victim := receive(t, "the victim's answer", answers)
		if took := time.Since(began); took > time.Second+meter.Since(began) {
			t.Errorf("a deadlock of %d processes was reported after %v", n, took)
		}
		want := `deadlock: calls wait for each other: this one, by hand of process \S+/\d+, holds \S+ and waits for \S+, ` +
			`which by hand of process \S+/\d+ holds; that holds \S+ and waits for \S+,`
		if !regexp.MustCompile(want).MatchString(victim) {
			t.Errorf("the victim's error is %q", victim)
		}
		for range n - 1 {
			if answer := receive(t, "an answer", answers); answer != "ok" {
				t.Errorf("another victim: %q", answer)
			}
		}
		for _, p := range ring {
			p.answer()
		}
	}
}
