package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A member is asked late, for an attempt that was refused meanwhile: the next attempt of the
// acquisition has been granted, and keeps what it has.
func TestLateAskOfARefusedAttempt(t *testing.T) {
	b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}, Options{LongestTTL: time.Minute})
	defer func() { require.NoError(t, b.Close()) }()
	a := &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000001:1", TTL: time.Minute, Tokens: 1}
	refused := &vote{b: b, a: a, q: b.enter(a.ID), changed: make(chan struct{}, 1), decided: make(chan struct{})}
	close(refused.decided)
	next, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	for i, m := range b.members {
		refused.ask(t.Context(), &ballot{member: m, slot: &refused.q.slots[i], confirm: make(chan uint64, 1)}, *a)
	}
	require.NoError(t, next.Release(t.Context(), 0))
	b.leave(a.ID, refused.q)
}
