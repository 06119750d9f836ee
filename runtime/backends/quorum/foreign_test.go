package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// conflicting is a server that has data other than a lock at each key.
type conflicting struct{ *server }

func (conflicting) Acquire(_ context.Context, a *driver.Acquisition) (driver.Lease, error) {
	return nil, fmt.Errorf("%w: a list at %q", driver.ErrConflict, a.Key)
}

// If a majority of members has data other than a lock at the key, the acquire returns ErrConflict. If only one
// member has it, the acquire succeeds.
func TestForeignKindAtAMajority(t *testing.T) {
	for _, has := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			members := map[string]driver.Backend{"a": newServer(), "b": newServer(), "c": newServer()}
			for _, name := range []string{"a", "b"}[:has] {
				members[name] = conflicting{newServer()}
			}
			b := quorum.New(members, quorum.Options{Timeout: 100 * time.Millisecond})
			defer b.Close()
			l, err := b.Acquire(t.Context(), acquisition("key", "1:1"))
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

// One member says that the key is held, or that data other than a lock is there. While the other members can't
// be reached or hang, the quorum must not say so.
func TestOneMemberIsNoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := newServer()
		if _, err := held.Backend.Acquire(t.Context(), acquisition("key", "2:1")); err != nil {
			t.Fatal(err)
		}
		for says, one := range map[string]driver.Backend{"held": held, "conflicting": conflicting{newServer()}} {
			for _, hung := range []bool{false, true} {
				members := map[string]driver.Backend{"a": one}
				for _, name := range []string{"b", "c"} {
					members[name] = unreachable{newServer()}
					if hung {
						s := newServer()
						s.hang(true)
						members[name] = s
					}
				}
				l := lock.New(quorum.New(members), nil)
				for _, try := range []bool{true, false} {
					_, _, err := l.Acquire(t.Context(), &lock.Policy{TTL: 2 * time.Second, Try: try}, "key") // forever if the quorum says "held"
					if !errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrIndeterminate) || errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrConflict) {
						t.Errorf("%s, hung %t, try %t: %v", says, hung, try, err)
					}
				}
				_ = l.Close(t.Context())
			}
		}
	})
}

// unreachable is a server that can't be reached. Its error comes later than the answers of other members.
type unreachable struct{ *server }

func (unreachable) Acquire(context.Context, *driver.Acquisition) (driver.Lease, error) {
	time.Sleep(2 * roundTrip)
	return nil, errors.New("connection refused")
}
