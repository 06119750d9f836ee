package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

// lapsDone is what the program of a peer prints at the end of a workload of kinds.
type lapsDone struct {
	tally
	Waits []time.Duration // instead of the field of tally
}

// laps runs the program of p, which does this worker's part.
func (s *session) laps(ctx context.Context, p *peers.Peer) (n note, err error) {
	cmd := p.Laps(peers.Laps{
		Kind: s.Kind, Addr: s.Addr, Key: s.key(0), TTL: s.TTL, Goroutines: s.Goroutines, Section: s.Section,
	})
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return n, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer func() {
		if stop() {
			err = errors.Join(err, cmd.Wait())
		}
	}()
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		return n, fmt.Errorf("%s: it printed %q, not ready: %w", p.Name, line, err)
	}
	s.say(note{Op: noteReady})
	o, err := s.hear(opGo)
	if err != nil {
		return n, err
	}
	fmt.Fprintln(in, opGo, time.Unix(0, o.At).UnixMilli(), s.Length.Milliseconds())
	var done lapsDone
	if err := json.NewDecoder(lines).Decode(&done); err != nil {
		return n, fmt.Errorf("%s: %w", p.Name, err)
	}
	t := done.tally
	t.Waits, t.Cycles = &histogram.Histogram{}, &histogram.Histogram{}
	t.Shared = sum(t.Holds)
	for _, wait := range done.Waits {
		t.Waits.Add(wait)
	}
	text, err := json.Marshal(&t)
	return note{Op: noteResult, Result: text}, err
}
