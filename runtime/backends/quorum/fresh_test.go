package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

const longest = time.Minute // the default of quorum.Options.LongestTTL

// So many members have just started that no majority may vote. In one case a member hangs too. A call that waits gets
// the lock once the members vote. A call that does not wait must not report that the key is held.
func TestWaitsForFreshMembers(t *testing.T) {
	for name, hung := range map[string]int{"all": 0, "one of them hangs": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := servers(3)
				for i, s := range all {
					s.restart()
					s.hang(i < hung)
				}
				l := lock.New(process(t, all), nil)
				begin := time.Now()
				for range 2 { // the second time the Backend knows the members' ages
					for _, p := range []*lock.Policy{{Try: true}, {Wait: 5 * time.Second}, {Try: true, Skip: true}} {
						_, _, err := l.Acquire(t.Context(), p, "key")
						if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) || !strings.Contains(err.Error(), "may have forgotten") {
							t.Errorf("while no majority may vote: %v", err)
						}
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*longest)
				defer cancel()
				holds := make(chan *lock.Hold, 2)
				go func() {
					var reqs []lock.Request
					for i := range 5 {
						reqs = append(reqs, lock.Request{Key: fmt.Sprint("of several ", i)})
					}
					_, h, err := l.AcquireAll(ctx, reqs...)
					if err != nil {
						t.Errorf("AcquireAll: %v", err)
					}
					holds <- h
				}()
				_, h, err := l.Acquire(ctx, nil, "key")
				if err != nil {
					t.Errorf("Acquire: %v", err)
				}
				holds <- h
				for range 2 {
					h := <-holds
					if took := time.Since(begin); took < longest-time.Second || took > longest+3*time.Second {
						t.Errorf("granted after %v; want a little more than %v", took, longest)
					}
					h.Release(nil)
				}
				_ = l.Close(t.Context())
			})
		})
	}
}

// One member has just started and another hangs. A majority answers, and will vote later.
func TestWaitsForAFreshMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := servers(3)
		all[0].restart()
		all[1].hang(true)
		l := lock.New(process(t, all), nil)
		begin := time.Now()
		_, h, err := l.Acquire(t.Context(), &lock.Policy{Wait: 2 * longest}, "key")
		if took := time.Since(begin); err != nil || took < longest-time.Second || took > longest+3*time.Second {
			t.Errorf("granted after %v: %v; want a little more than %v", took, err, longest)
		}
		h.Release(nil)
		all[1].hang(false)
		_ = l.Close(t.Context())
	})
}
