package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// snapshot returns the locks that match the pattern, by key: 10,000 at most.
func (c *command) snapshot(ctx context.Context, b *backend) (map[string]*lockRow, error) {
	clear(b.processes) // some may have registered meanwhile
	rows, more, err := b.collect(ctx, c.pattern(), manyLocks, c.timeout, func([]*lockRow) error { return errEnough })
	if err != nil {
		return nil, c.reached(err)
	}
	if more {
		return nil, usage("more than %d locks match; name fewer by a pattern", manyLocks)
	}
	all := map[string]*lockRow{}
	for _, r := range rows {
		all[r.Key] = r
	}
	return all, nil
}

const manyLocks = 10_000

// repeated calls show with the locks every -every, -n times or until it is interrupted.
func (c *command) repeated(ctx context.Context, show func(all map[string]*lockRow) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	b, err := c.open()
	if err != nil {
		return err
	}
	defer b.Close()
	for n := 1; ; n++ {
		all, err := c.snapshot(ctx, b)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := show(all); err != nil || n == c.times {
			return err
		}
		select {
		case <-time.After(max(c.every, 100*time.Millisecond)):
		case <-ctx.Done():
			return nil
		}
	}
}

// change is one line of watch.
type change struct {
	Time   time.Time  `json:"time"`
	Change string     `json:"change"` // taken, freed
	Key    string     `json:"key"`
	Holder *holderRow `json:"holder"`
}

// watch prints who takes and frees locks.
func (c *command) watch(ctx context.Context) error {
	var before map[string]*lockRow
	return c.repeated(ctx, func(all map[string]*lockRow) error {
		for _, ch := range changes(before, all) {
			ch.Time = time.Now()
			if err := c.printChange(ch); err != nil {
				return err
			}
		}
		before = all
		return nil
	})
}

// changes returns the changes by key. Those of a key begin with the holders that freed it.
func changes(before, after map[string]*lockRow) (all []change) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]*lockRow{}
	}
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, now := holdersOf(before[key]), holdersOf(after[key])
		for i := range old {
			if !among(now, old[i].ID) {
				all = append(all, change{Change: "freed", Key: key, Holder: &old[i]})
			}
		}
		for i := range now {
			if !among(old, now[i].ID) {
				all = append(all, change{Change: "taken", Key: key, Holder: &now[i]})
			}
		}
	}
	return all
}

func holdersOf(r *lockRow) []holderRow {
	if r == nil {
		return nil
	}
	return r.Holders
}

func among(all []holderRow, id string) bool {
	return slices.ContainsFunc(all, func(h holderRow) bool { return h.ID == id })
}

func (c *command) printChange(ch change) error {
	if c.json {
		return json.NewEncoder(c.stdout).Encode(ch)
	}
	_, err := fmt.Fprintf(c.stdout, "%s %s %s %s\n", ch.Time.Format("15:04:05.000"), ch.Change, printable(ch.Key), ch.Holder.sentence())
	return err
}

// top shows the locks with the most waiters, and redraws the screen each time.
func (c *command) top(ctx context.Context) error {
	return c.repeated(ctx, func(all map[string]*lockRow) error {
		rows := slices.SortedFunc(maps.Values(all), byWaiters)
		holders, waiters := 0, 0
		for _, r := range rows {
			holders += len(r.Holders)
			waiters += r.waiting()
		}
		shown := rows[:min(len(rows), c.limit)]
		var b strings.Builder
		if c.times != 1 {
			b.WriteString("\x1b[H\x1b[2J") // to the upper left corner; clear the screen
		}
		fmt.Fprintf(&b, "%s  %s  %d locks, %d holders, %d wait\n", time.Now().Format(time.TimeOnly), redacted(c.url), len(rows), holders, waiters)
		if err := table(&b, shown, true); err != nil {
			return err
		}
		if n := len(rows) - len(shown); n > 0 {
			fmt.Fprintf(&b, "and %d more\n", n)
		}
		_, err := fmt.Fprint(c.stdout, b.String()) // in one write, so that it does not flicker
		return err
	})
}

func (r *lockRow) waiting() int {
	if r.Waiters == nil {
		return 0
	}
	return *r.Waiters
}

// byWaiters sorts locks by their number of waiters, and then by how long they have been held.
func byWaiters(a, b *lockRow) int {
	since := func(r *lockRow) time.Time {
		for _, h := range r.Holders {
			if h.Since != nil {
				return *h.Since
			}
		}
		return time.Now()
	}
	return cmp.Or(cmp.Compare(b.waiting(), a.waiting()), since(a).Compare(since(b)), cmp.Compare(a.Key, b.Key))
}
