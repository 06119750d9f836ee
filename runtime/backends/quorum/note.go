package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members. It waits for all, each for a Timeout,
// so that none puts it in place of a later one.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(ctx, len(b.members), func(ctx context.Context, n driver.Noter) (string, error) {
		return "", n.PutNote(ctx, name, text, ttl)
	})
	return err
}

// Note implements [driver.Noter]. Nothing is returned while a majority does not agree.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, b.majority, func(ctx context.Context, n driver.Noter) (string, error) { return n.Note(ctx, name) })
}

// note asks all members, waits until so many have answered alike or all have had their time, and returns what a
// majority answers.
func (b *Backend) note(ctx context.Context, enough int, ask func(context.Context, driver.Noter) (string, error)) (string, error) {
	if err := b.group.Usable(); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(b.members))
	for _, m := range b.members {
		b.begin(func() {
			limited, cancel := b.limited(ctx, b.options.LongestTTL)
			defer cancel()
			a := answer{err: errors.ErrUnsupported}
			if n, ok := m.Backend.(driver.Noter); ok {
				a.text, a.err = ask(limited, n)
			}
			answers <- a
		})
	}
	votes, agreed := map[string]int{}, answer{err: errors.New("no majority of the members agrees on a note")}
	var failed []error
	for range b.members {
		a := <-answers
		if a.err != nil {
			failed = append(failed, a.err)
			continue
		}
		if votes[a.text]++; votes[a.text] >= b.majority {
			agreed = a
		}
		if votes[a.text] >= enough {
			break
		}
	}
	if agreed.err != nil {
		return "", errors.Join(append(failed, agreed.err)...)
	}
	return agreed.text, nil
}
