package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(ctx, func(ctx context.Context, n driver.Noter) (string, error) {
		return "", n.PutNote(ctx, name, text, ttl)
	})
	return err
}

// Note implements [driver.Noter]. Nothing is returned while a majority does not agree.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, func(ctx context.Context, n driver.Noter) (string, error) { return n.Note(ctx, name) })
}

// note puts or reads a note at all members by ask, and returns what a majority of them answers. The
// others have their time when the caller has gone.
func (b *Backend) note(ctx context.Context, ask func(context.Context, driver.Noter) (string, error)) (string, error) {
	if err := b.group.Usable(); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(b.members))
	for _, m := range b.members {
		limited, cancel := b.limited(context.WithoutCancel(ctx), b.options.LongestTTL)
		b.begin(func() {
			defer cancel()
			a := answer{err: errors.ErrUnsupported}
			if n, ok := m.Backend.(driver.Noter); ok {
				a.text, a.err = ask(limited, n)
			}
			answers <- a
		})
	}
	votes := map[string]int{}
	var failed []error
	for range b.members {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return "", errors.Join(append(failed, ctx.Err())...)
		}
		if a.err != nil {
			failed = append(failed, a.err)
		} else if votes[a.text]++; votes[a.text] >= b.majority {
			return a.text, nil
		}
	}
	return "", errors.Join(append(failed, errors.New("no majority of the members agrees on a note"))...)
}
