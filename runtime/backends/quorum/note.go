package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// PutNote implements [driver.Noter], at a majority of the members. Each member gets the notes in the
// order of the calls.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	_, err := b.note(ctx, func(m *member) noteCall {
		before, put := m.nextNote()
		return func(ctx context.Context, n driver.Noter) (string, error) {
			defer close(put)
			<-before // closed in time, because the timeout of that call is over before this one's
			return "", n.PutNote(ctx, name, text, ttl)
		}
	})
	return err
}

// nextNote returns a channel that is closed when the notes before this one have been put at m,
// and one that the caller must close when this one has.
func (m *member) nextNote() (before, put chan struct{}) {
	m.backend.mu.Lock()
	defer m.backend.mu.Unlock()
	before, put = m.lastNote, make(chan struct{})
	m.lastNote = put
	return before, put
}

// Note implements [driver.Noter]. It is an error if no majority agrees.
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	return b.note(ctx, func(*member) noteCall {
		return func(ctx context.Context, n driver.Noter) (string, error) { return n.Note(ctx, name) }
	})
}

// noteCall puts or reads a note at one member.
type noteCall func(context.Context, driver.Noter) (string, error)

// note makes the call of(m) at each member m, and returns what a majority answers. The other calls
// go on in the background until their timeouts.
func (b *Backend) note(ctx context.Context, of func(*member) noteCall) (string, error) {
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
