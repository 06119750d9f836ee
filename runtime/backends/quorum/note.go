package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(func(n driver.Noter) (string, error) { return "", n.PutNote(ctx, name, text, ttl) })
	return err
}

// Note implements [driver.Noter]. Nothing is returned while a majority does not agree.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(func(n driver.Noter) (string, error) { return n.Note(ctx, name) })
}

// note asks all members, and returns what a majority of them answers.
func (b *Backend) note(ask func(driver.Noter) (string, error)) (string, error) {
	if err := b.group.Usable(); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(b.members))
	for _, m := range b.members {
		b.work.begin(func() {
			a := answer{err: errors.ErrUnsupported}
			if n, ok := m.Backend.(driver.Noter); ok {
				a.text, a.err = ask(n)
			}
			answers <- a
		})
	}
	votes := map[string]int{}
	var failed []error
	for range b.members {
		a := <-answers
		if a.err != nil {
			failed = append(failed, a.err)
		} else if votes[a.text]++; votes[a.text] >= b.majority {
			return a.text, nil
		}
	}
	return "", errors.Join(append(failed, errors.New("no majority of the members agrees on a note"))...)
}
