package backendtest

import (
	"slices"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// stormKey is a key of a storm, with the policies under which it is acquired. The last policy
// excludes the most others.
type stormKey struct {
	name     string
	policies []lock.Policy
}

// drawKeys makes the keys: mutexes, and one of each kind that the backend has.
func (st *storm) drawKeys() {
	for range stormKeys {
		st.keys = append(st.keys, stormKey{st.newKey(), []lock.Policy{{}, {Queue: 1}, {Delay: st.h.TTL / 2}, {}}})
	}
	for _, kind := range []struct {
		needs    Ability
		policies []lock.Policy
	}{
		{ReadWriteLocks, []lock.Policy{{Read: true}, {Read: true}, {Write: true}}},
		{FairLocks, []lock.Policy{{Fair: true}}},
		{Semaphores, []lock.Policy{{Permits: 3}, {Permits: 3}, {Permits: 3, Weight: 3}}},
	} {
		if _, missing := st.h.Cannot[kind.needs]; !missing {
			st.keys = append(st.keys, stormKey{st.newKey(), kind.policies})
		}
	}
}

// verify looks for claims that overlap but must not, and for tokens that do not rise.
func (st *storm) verify() {
	for key, claims := range st.claims {
		slices.SortFunc(claims, func(a, b claim) int { return a.from.Compare(b.from) })
		at := func(t time.Time) time.Duration { return t.Sub(claims[0].from).Round(time.Microsecond) }
		var inside []claim
		token := uint64(0) // of the last claim that excluded all others
		for _, b := range claims {
			inside = slices.DeleteFunc(inside, func(a claim) bool { return !b.from.Before(a.until) })
			for _, a := range inside {
				if !compatible(a.policy, b.policy) {
					st.Errorf("seed %d: two held %s: %s from %v until %v with token %d, and %s from %v with token %d",
						st.seed, key, a.who, at(a.from), at(a.until), a.token, b.who, at(b.from), b.token)
				}
			}
			if n := taken(append(inside, b)); b.policy.Permits > 0 && n > b.policy.Permits {
				st.Errorf("seed %d: %d of %d permits of %s were taken at %v", st.seed, n, b.policy.Permits, key, at(b.from))
			}
			inside = append(inside, b)
			switch {
			case b.policy.Permits > 0:
			case b.token < token || b.token == token && !b.policy.Read:
				st.Errorf("seed %d: %s: %s at %v had token %d, after %d", st.seed, key, b.who, at(b.from), b.token, token)
			case !b.policy.Read:
				token = b.token
			}
		}
	}
}

// compatible reports whether holds under p and q may exist at the same time.
func compatible(p, q *lock.Policy) bool { return p.Read && q.Read || p.Permits > 0 }

func taken(claims []claim) (n int) {
	for _, c := range claims {
		n += max(c.policy.Weight, 1)
	}
	return n
}
