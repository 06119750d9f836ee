package sqllock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// stuck returns a batcher whose batches end when goOn is closed. batches returns the calls of each batch.
func stuck(t *testing.T) (b *batcher[int], batches func() [][]int, goOn chan struct{}) {
	var mu sync.Mutex
	var all [][]int
	goOn = make(chan struct{})
	life := engine.NewLife()
	life.Attach()
	t.Cleanup(func() { life.Close(nil) })
	b = &batcher[int]{life: life, run: func(_ context.Context, calls []int) {
		mu.Lock()
		all = append(all, calls)
		mu.Unlock()
		<-goOn
	}}
	return b, func() [][]int { mu.Lock(); defer mu.Unlock(); return all }, goOn
}

// queue starts maxBatches calls, each in a batch of its own, and n calls that wait behind them. It returns their results.
func queue(ctx context.Context, b *batcher[int], n int) chan error {
	errs := make(chan error, maxBatches+n)
	for i := range maxBatches + n {
		go func() { errs <- b.do(ctx, i) }()
		for there := 0; there <= i; { // each batch has one call, the others wait
			b.mu.Lock()
			there = b.batches + len(b.waiting)
			if b.batches < min(i+1, maxBatches) || i < maxBatches && len(b.waiting) > 0 {
				there = 0
			}
			b.mu.Unlock()
			runtime.Gosched()
		}
	}
	return errs
}

func TestCallsThatWaitShareStatements(t *testing.T) {
	b, batches, goOn := stuck(t)
	errs := queue(t.Context(), b, 52)
	close(goOn)
	for range maxBatches + 52 {
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
	// The first batches have one call each. The calls that waited go in batches of 32, 16 and 4.
	if len(sent) != maxBatches+52 || len(batches()) != maxBatches+3 {
		t.Errorf("%d calls were sent in %d batches: %v", len(sent), len(batches()), batches())
	}
}

func TestWhoLeavesIsNotSent(t *testing.T) {
	b, batches, goOn := stuck(t)
	ctx, cancel := context.WithCancel(t.Context())
	errs := queue(ctx, b, 3)
	cancel()
	unsent := 0
	for range maxBatches + 3 {
		err := <-errs
		if errors.Is(err, errNotSent) {
			unsent++
		} else if !errors.Is(err, errNoAnswer) {
			t.Errorf("a call whose caller left: %v", err)
		}
	}
	close(goOn)
	for left := 1; left > 0; runtime.Gosched() {
		b.mu.Lock()
		left = b.batches
		b.mu.Unlock()
	}
	if unsent != 3 || len(batches()) != maxBatches {
		t.Errorf("%d calls were not sent, in %v", unsent, batches())
	}
}

func TestFewCallsGoAlone(t *testing.T) {
	b, _, goOn := stuck(t)
	for range maxAlone {
		if !b.goAlone() {
			t.Fatal("fewer than maxAlone calls are alone, but another can't be")
		}
	}
	if b.goAlone() {
		t.Error("a call more than maxAlone goes alone")
	}
	b.doneAlone()
	errs := queue(t.Context(), b, 0)
	if b.goAlone() {
		t.Error("a call goes alone while batches are under way")
	}
	close(goOn)
	for range maxBatches {
		<-errs
	}
}
