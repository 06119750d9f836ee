package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressDelay is how long a run may take before it prints what it is doing.
const progressDelay = time.Second

// progress prints what a slow run is doing. It prints only to a terminal.
type progress struct {
	w io.Writer

	mu      sync.Mutex
	current string
	slow    bool
	timer   *time.Timer
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if isTerminal(w) {
		p.timer = time.AfterFunc(progressDelay, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.slow = true
			p.print()
		})
	}
	return p
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stage records the present stage of the run.
func (p *progress) stage(s string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = s
	if p.slow {
		p.print()
	}
}

func (p *progress) print() {
	if p.current != "" {
		fmt.Fprintf(p.w, "lockgen: %s …\n", p.current)
	}
}

func (p *progress) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow, p.current = false, ""
}
