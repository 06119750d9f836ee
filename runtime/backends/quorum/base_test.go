package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// revisions is a server whose tokens start low, as revisions do, and can't be raised.
type revisions struct {
	driver.Backend
	server *server
	less   uint64
}

func newRevisions() *revisions {
	s := newServer()
	return &revisions{s, s, uint64(time.Now().UnixMicro())*driver.TokensPerMicrosecond - 1000}
}

type revised struct {
	driver.Lease
	less uint64
}

func (r *revisions) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, err := r.server.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &revised{l, r.less}, nil
}

func (r *revisions) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	memory, err := r.server.reach(ctx)
	if err != nil {
		return "", err
	}
	return memory.CompareAndSwap(ctx, key, old, next)
}

func (l *revised) Tokens() (first, n uint64) {
	first, n = l.Lease.Tokens()
	return first - l.less, n
}

func (l *revised) Release(ctx context.Context, last uint64) error {
	first, n := l.Tokens()
	if last+1 < first || last >= first+n {
		return fmt.Errorf("token %d is not one of the %d tokens from %d", last, n, first)
	}
	return l.Lease.Release(ctx, last+l.less)
}

// Tokens rise even if the members of a majority count their own tokens in different ways.
func TestTokensRiseOverRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, one, two := newServer(), newRevisions(), newRevisions()
		of := []*server{clock, one.server, two.server}
		var processes []*quorum.Backend
		for range 2 {
			b := quorum.New(map[string]driver.Backend{"a": clock, "b": one, "c": two}, quorum.Options{Timeout: 100 * time.Millisecond})
			processes = append(processes, b)
			t.Cleanup(func() { _ = b.Close() })
		}
		last := uint64(0)
		for i := range 24 {
			absent := of[2-i%3]
			absent.hang(true)
			l, err := processes[i%2].Acquire(t.Context(), acquisition("key", fmt.Sprintf("1:%d", i+1)))
			if err != nil {
				t.Fatal(err)
			}
			token, _ := l.Tokens()
			if token <= last {
				t.Errorf("%d: token %d after token %d", i, token, last)
			}
			last = token
			absent.hang(false)
			if i%2 == 0 {
				time.Sleep(time.Minute) // as if the holder had crashed
			} else if err := l.Release(t.Context(), token); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
	})
}
