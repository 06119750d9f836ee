package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members. Each of them gets notes in the
// order of the calls, also those that it is late with.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(ctx, func(m *member) func(driver.Noter) (string, error) {
		before, put := m.nextNote()
		return func(n driver.Noter) (string, error) {
			defer close(put)
			<-before
			return "", n.PutNote(ctx, name, text, ttl)
		}
	})
	return err
}

// nextNote returns what is closed when the notes before this one have been put at m, and what
// the caller is to close.
func (m *member) nextNote() (before, put chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, put = m.noted, make(chan struct{})
	m.noted = put
	return before, put
}

// Note implements [driver.Noter]. Nothing is returned while a majority does not agree.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, func(*member) func(driver.Noter) (string, error) {
		return func(n driver.Noter) (string, error) { return n.Note(ctx, name) }
	})
}

// note asks all members by what of returns for each, and returns what a majority of them answers.
func (b *Backend) note(ctx context.Context, of func(*member) func(driver.Noter) (string, error)) (string, error) {
	if err := b.group.Usable(); err != nil {
		return "", err
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, len(b.members))
	for _, m := range b.members {
		ask := of(m)
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
