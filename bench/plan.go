package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// plan runs every workload with every peer, b.runs times: first each peer once, then
// each once more in the opposite order, and so on. So noise that lasts affects all peers
// in the same way.
func (b *bench) plan(ctx context.Context, progress io.Writer) (*report, error) {
	r, err := b.newReport(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range b.only {
		joined := b.joined(w, r)
		if len(joined) == 0 {
			continue
		}
		if w.lacks != nil {
			if err := w.lacks(); err != nil {
				r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %v", w.name, err))
				continue
			}
		}
		part := r.begin(w, joined)
		for i := range b.runs {
			if i > 0 {
				slices.Reverse(joined)
			}
			for _, p := range joined {
				m, err := w.measure(ctx, b, w, p)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				at := fmt.Sprintf("%s, %s, run %d of %d", w.name, p.Name, i+1, b.runs)
				if err != nil {
					r.problem(at, err)
					fmt.Fprintf(progress, "bench: %s: %v\n", at, err)
					continue
				}
				part.add(p, m)
				fmt.Fprintf(progress, "bench: %s: %s\n", at, w.line(m))
			}
		}
		part.sum()
	}
	if b.engine == peers.Redis {
		r.judge()
	}
	r.Took = time.Since(r.Began).Round(time.Second).String()
	return r, nil
}

// joined returns the peers that take part in w, and records in r those that can't.
func (b *bench) joined(w *workload, r *report) []*peers.Peer {
	var joined []*peers.Peer
	for _, p := range b.peers {
		if !w.takes(p) || b.engine != peers.Redis && w.redisOnly {
			continue
		}
		if p.Missing != nil {
			if err := p.Missing(); err != nil {
				r.Skipped = append(r.Skipped, fmt.Sprintf("%s, %s: %v", w.name, p.Name, err))
				continue
			}
		}
		joined = append(joined, p)
	}
	return joined
}

// line returns the progress line of one run.
func (w *workload) line(m metrics) string {
	var parts []string
	for _, c := range w.summary {
		parts = append(parts, c.title+" "+c.show(m[c.name]))
	}
	return strings.Join(parts, ", ")
}

// problem records that a run failed or that exclusion was broken.
func (r *report) problem(at string, err error) {
	if _, ok := errors.AsType[violation](err); ok {
		at = "EXCLUSION WAS BROKEN in " + at
	}
	r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", at, err))
}
