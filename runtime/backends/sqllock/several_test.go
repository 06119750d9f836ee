package sqllock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// stuck is a combiner whose batches end when go on is closed.
func stuck(t *testing.T) (c *combiner[int], batches func() [][]int, goOn chan struct{}) {
	var mu sync.Mutex
	var all [][]int
	goOn = make(chan struct{})
	life := engine.NewLife()
	life.Attach()
	t.Cleanup(func() { life.Close(nil) })
	c = &combiner[int]{life: life, run: func(_ context.Context, calls []int) {
		mu.Lock()
		all = append(all, calls)
		mu.Unlock()
		<-goOn
	}}
	return c, func() [][]int { mu.Lock(); defer mu.Unlock(); return all }, goOn
}

// queue has n calls wait behind batches that are under way, and returns what they came to.
func queue(ctx context.Context, c *combiner[int], n int) chan error {
	errs := make(chan error, batchesMost+n)
	for i := range batchesMost + n {
		go func() { errs <- c.do(ctx, i) }()
		for there := 0; there <= i; { // each batch has one call, the others wait
			c.mu.Lock()
			there = c.batches + len(c.waiting)
			if c.batches < min(i+1, batchesMost) || i < batchesMost && len(c.waiting) > 0 {
				there = 0
			}
			c.mu.Unlock()
			runtime.Gosched()
		}
	}
	return errs
}

func TestCallsThatWaitShareStatements(t *testing.T) {
	c, batches, goOn := stuck(t)
	errs := queue(t.Context(), c, 52)
	close(goOn)
	for range batchesMost + 52 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	sent := map[int]bool{}
	for _, batch := range batches() {
		for _, i := range batch {
			sent[i] = true
		}
	}
	// Those at first, and 32, 16 and 4.
	if len(sent) != batchesMost+52 || len(batches()) != batchesMost+3 {
		t.Errorf("%d calls were sent in %d batches: %v", len(sent), len(batches()), batches())
	}
}

func TestWhoLeavesIsNotSent(t *testing.T) {
	c, batches, goOn := stuck(t)
	ctx, cancel := context.WithCancel(t.Context())
	errs := queue(ctx, c, 3)
	cancel()
	unsent := 0
	for range batchesMost + 3 {
		err := <-errs
		if errors.Is(err, errNotSent) {
			unsent++
		} else if !errors.Is(err, errNoAnswer) {
			t.Errorf("a call that was left: %v", err)
		}
	}
	close(goOn)
	for left := 1; left > 0; runtime.Gosched() {
		c.mu.Lock()
		left = c.batches
		c.mu.Unlock()
	}
	if unsent != 3 || len(batches()) != batchesMost {
		t.Errorf("%d calls were not sent, in %v", unsent, batches())
	}
}

func TestFewCallsGoAlone(t *testing.T) {
	c, _, goOn := stuck(t)
	for range aloneMost {
		if !c.goAlone() {
			t.Fatal("a call among few does not go alone")
		}
	}
	if c.goAlone() {
		t.Error("one call more than aloneMost goes alone")
	}
	c.wentAlone()
	errs := queue(t.Context(), c, 0)
	if c.goAlone() {
		t.Error("a call goes alone beside batches")
	}
	close(goOn)
	for range batchesMost {
		<-errs
	}
}
