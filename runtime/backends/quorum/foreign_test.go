package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// foreign is a server that has something at each key that is no lock.
type foreign struct{ *server }

func (foreign) Acquire(_ context.Context, a *driver.Acquisition) (driver.Lease, error) {
	return nil, fmt.Errorf("%w: a list at %q", driver.ErrConflict, a.Key)
}

// Something that is no lock is told of where a majority has it, and one member that has it is in nobody's way.
func TestForeignKindAtAMajority(t *testing.T) {
	for _, has := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			members := map[string]driver.Backend{"a": newServer(), "b": newServer(), "c": newServer()}
			for _, name := range []string{"a", "b"}[:has] {
				members[name] = foreign{newServer()}
			}
			b := quorum.New(members, quorum.Options{Timeout: 100 * time.Millisecond})
			defer b.Close()
			l, err := b.Acquire(t.Context(), wish("key", "1:1"))
			if has == 1 {
				if err != nil {
					t.Fatalf("with one of three: %v", err)
				}
				first, _ := l.Tokens()
				if err := l.Release(t.Context(), first); err != nil {
					t.Error(err)
				}
			} else if !errors.Is(err, driver.ErrConflict) {
				t.Fatalf("with two of three: %v, want %v", err, driver.ErrConflict)
			}
		})
	}
}
