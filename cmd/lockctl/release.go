package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// release frees a lock, whoever holds it.
func (c *command) release(ctx context.Context) error {
	b, err := c.open()
	if err != nil {
		return err
	}
	defer b.Close()
	key := c.args[0]
	r, err := c.lookUp(ctx, b, key)
	if err != nil {
		return err
	}
	if r == nil || len(r.Holders) == 0 {
		return failed(codeNone, "nobody holds %q", key)
	}
	if c.id != "" {
		r.Holders = slices.DeleteFunc(r.Holders, func(h holderRow) bool { return h.ID != c.id })
		if len(r.Holders) == 0 {
			return failed(codeChanged, "%s does not hold %s", c.id, printable(key))
		}
	}
	if !c.yes && !c.confirmed(r) {
		return failed(codeDeclined, "%s was not freed: not confirmed (-yes does not ask)", printable(key))
	}
	for _, h := range r.Holders {
		if err := c.free(ctx, b, key, h); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s was freed; it was held by %s\n", printable(key), h.sentence())
	}
	return nil
}

// confirmed names the holders, and asks whether to free the lock.
func (c *command) confirmed(r *lockRow) bool {
	for _, h := range r.Holders {
		fmt.Fprintf(c.stderr, "%s is held by %s.\n", printable(r.Key), h.sentence())
	}
	fmt.Fprint(c.stderr, "The holder is not ended, and goes on until its next renewal. Free the lock? [y/N] ")
	line, _ := bufio.NewReader(c.stdin).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

func (c *command) free(ctx context.Context, b *backend, key string, h holderRow) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := b.Break(ctx, key, h.ID)
	switch {
	case errors.Is(err, driver.ErrLost):
		return failed(codeChanged, "%s is not held by %s any more; nothing was freed", printable(key), h.ID)
	case errors.Is(err, driver.ErrConflict), errors.Is(err, driver.ErrInvalid):
		return failed(codeConflict, "%s can't be freed: %v", printable(key), err)
	}
	return c.reached(err)
}
