package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// list prints the locks that match a pattern.
func (c *command) list(ctx context.Context) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	defer b.Close()
	page, heading := c.limit, true
	if page == 0 {
		page = 1000 // print them in pages of this size
	}
	rows, more, err := b.collect(ctx, c.pattern(), page, c.timeout, func(full []*lockRow) error {
		if c.limit > 0 {
			return errEnough
		}
		defer func() { heading = false }()
		return c.print(full, heading)
	})
	if err != nil {
		return c.reached(err)
	}
	slices.SortStableFunc(rows, func(a, b *lockRow) int { return cmp.Compare(a.Key, b.Key) })
	if err := c.print(rows, heading); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(c.stderr, "lockctl: there are more than %d locks; -limit 0 prints all, a pattern those that match it\n", c.limit)
	}
	return nil
}

// errEnough ends collect.
var errEnough = errors.New("enough")

func (c *command) pattern() string {
	if len(c.args) > 0 {
		return c.args[0]
	}
	return "*"
}

func (c *command) print(rows []*lockRow, heading bool) error {
	if c.json {
		return objects(c.stdout, rows)
	}
	return table(c.stdout, rows, heading)
}

// collect returns the locks that match pattern, without repeats. It calls next with each full
// page. If next returns errEnough, collect ends and reports that there may be more locks. The
// timeout is for each lock that the engine yields.
func (b *backend) collect(ctx context.Context, pattern string, page int, timeout time.Duration, next func([]*lockRow) error) (rows []*lockRow, more bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
	defer late.Stop()
	seen := map[string]bool{}
	for info, err := range b.Locks(ctx, pattern) {
		if err != nil {
			if context.Cause(ctx) != nil {
				err = context.Cause(ctx)
			}
			return nil, false, err
		}
		late.Reset(timeout)
		if seen[info.Key] || len(info.Holders) == 0 && info.Waiters <= 0 {
			continue // a repeat, or a key that nobody holds or waits for
		}
		if len(rows) == page {
			late.Stop() // the time that next takes does not count as the engine's
			if err := next(rows); errors.Is(err, errEnough) {
				return rows, true, nil
			} else if err != nil {
				return nil, false, err
			}
			late.Reset(timeout)
			rows = nil
			clear(seen)
		}
		seen[info.Key] = true
		rows = append(rows, b.row(ctx, info))
	}
	return rows, false, nil
}

// lookUp returns the lock at the key, or nil if nobody holds it or waits for it.
func (c *command) lookUp(ctx context.Context, b *backend, key string) (*lockRow, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	info, err := b.Lock(ctx, key)
	switch {
	case errors.Is(err, driver.ErrConflict):
		return nil, failed(codeConflict, "%s is no lock: %v", printable(key), err)
	case err != nil:
		return nil, c.reached(err)
	case info == nil:
		return nil, nil
	}
	return b.row(ctx, info), nil
}

// show prints one lock.
func (c *command) show(ctx context.Context) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := c.lookUp(ctx, b, c.args[0])
	if err != nil {
		return err
	}
	if r == nil || len(r.Holders) == 0 {
		return failed(codeNone, "nobody holds %q", c.args[0])
	}
	if c.json {
		return objects(c.stdout, []*lockRow{r})
	}
	fmt.Fprintf(c.stdout, "%s, kind %s\n", printable(r.Key), r.Kind)
	for _, h := range r.Holders {
		side := "held"
		if h.Side != "" {
			side = "held for " + h.Side
		}
		fmt.Fprintf(c.stdout, "  %s by %s\n", side, h.sentence())
		if h.Token > 0 {
			fmt.Fprintf(c.stdout, "    fencing token %d\n", h.Token)
		}
	}
	if r.Waiters != nil {
		fmt.Fprintf(c.stdout, "  %d wait\n", *r.Waiters)
	}
	return nil
}

// wait returns once nobody holds the lock.
func (c *command) wait(ctx context.Context) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	defer b.Close()
	end := time.Now().Add(c.waitLimit())
	for {
		r, err := c.lookUp(ctx, b, c.args[0])
		if err != nil {
			return err
		}
		if r == nil || len(r.Holders) == 0 {
			return nil
		}
		left := time.Until(end)
		if left <= 0 {
			return failed(codeNone, "%s is held by %s", printable(c.args[0]), r.Holders[0].sentence())
		}
		time.Sleep(min(left, max(c.every, 100*time.Millisecond)))
	}
}

// waitLimit returns the time of -wait. 0 means a hundred years.
func (c *command) waitLimit() time.Duration {
	if c.maxWait == 0 {
		return 100 * 365 * 24 * time.Hour
	}
	return c.maxWait
}
