package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members. Each of them gets notes in the
// order of the calls, even one that is behind.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(ctx, func(m *member) asking {
		before, put := m.nextNote()
		return func(ctx context.Context, n driver.Noter) (string, error) {
			defer close(put)
			<-before // whose time is over before that of ctx is
			return "", n.PutNote(ctx, name, text, ttl)
		}
	})
	return err
}

// nextNote returns what is closed when the notes before this one have been put at m, and what
// the caller is to close.
func (m *member) nextNote() (before, put chan struct{}) {
	m.backend.mu.Lock()
	defer m.backend.mu.Unlock()
	before, put = m.noted, make(chan struct{})
	m.noted = put
	return before, put
}

// Note implements [driver.Noter]. Nothing is returned while a majority does not agree.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, func(*member) asking {
		return func(ctx context.Context, n driver.Noter) (string, error) { return n.Note(ctx, name) }
	})
}

// asking puts or reads a note at one member.
type asking func(context.Context, driver.Noter) (string, error)

// note asks all members by what of returns for each, and returns what a majority of them answers. The
// others have their time when the caller has gone.
func (b *Backend) note(ctx context.Context, of func(*member) asking) (string, error) {
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
