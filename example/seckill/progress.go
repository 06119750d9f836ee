package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// progress writes the progress of the demo to stderr: on a terminal in one line that is rewritten,
// elsewhere in a new line from time to time.
type progress struct {
	mu   sync.Mutex
	out  io.Writer
	live bool
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, live: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

const clearLine = "\r\x1b[K"

// event writes a line that stays.
func (p *progress) event(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		fmt.Fprint(p.out, clearLine)
	}
	fmt.Fprintf(p.out, format+"\n", args...)
}

// update rewrites the line.
func (p *progress) update(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live {
		fmt.Fprint(p.out, clearLine+line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// follow reports on the sale until done is called.
func (p *progress) follow(s *sale) (done func()) {
	every := 3 * time.Second
	if p.live {
		every = 100 * time.Millisecond
	}
	p.update(s.progressLine())
	ended := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.update(s.progressLine())
			case <-ended:
				p.event("%s", s.progressLine())
				return
			}
		}
	})
	return func() {
		close(ended)
		following.Wait()
	}
}

const barWidth = 24

// progressLine describes the progress of the sale.
func (s *sale) progressLine() string {
	answered, sold := s.tally.soFar()
	all := s.clicks()
	full := min(barWidth, barWidth*answered/all)
	bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	return fmt.Sprintf("%-13s [%s] %d of %d clicks answered, %d orders for %d pieces", s.name(), bar, answered, all, sold, s.stock)
}
