package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	// idleLimit is how long a lock may be free while a process waits for it and no fault
	// is in force: a lost notification takes a second, and a turn that the first in the queue
	// does not take lasts half a second. Each process that died in the queue costs another turn.
	idleLimit, turn = 1600 * time.Millisecond, 500 * time.Millisecond
	// noFaultsLimit is idleLimit for an episode without faults. Each process
	// that gave up at that moment costs a turn.
	noFaultsLimit = 150 * time.Millisecond
	// aftermath is how long after a fault its consequences are excused.
	aftermath = time.Second
)

// gap is a time in which a lock was free while a process waited for it.
type gap struct {
	key      string
	from, to int64
	waiter   history.Record
}

// gaps returns the gaps of the lock on key, according to the records of the callers.
func gaps(h *history.History, key string) (found []gap) {
	var acquires, releases []history.Record
	for _, r := range h.Records {
		switch {
		case r.Key != key || r.Ret == history.Never:
		case r.Op == history.Acquire && !r.Several: // such a call holds the first locks before it returns
			if r.Again { // before that it waited for a condition
				r.Call = r.Ret
			}
			acquires = append(acquires, r)
		case r.Op == history.Release:
			releases = append(releases, r)
		}
	}
	byEnd := func(a, b history.Record) int { return cmp.Compare(a.Ret, b.Ret) }
	slices.SortStableFunc(acquires, byEnd)
	slices.SortStableFunc(releases, byEnd)
	for i, r := range releases {
		if r.Outcome != history.OK {
			continue
		}
		next := r.Ret + int64(time.Hour)
		if i+1 < len(releases) {
			next = releases[i+1].Ret
		}
		// The next grant is after this release. If there is a later release, a hold was in between.
		for _, a := range acquires {
			if a.Outcome == history.OK && a.Ret >= r.Call {
				next = min(next, a.Ret)
				break
			}
		}
		longest := gap{key: key}
		for _, w := range acquires { // includes waits that began later, since the lease may be kept idle
			if from, to := max(r.Ret, w.Call), min(next, w.Ret); to-from > longest.to-longest.from {
				longest = gap{key, from, to, w}
			}
		}
		if longest.to > 0 {
			found = append(found, longest)
		}
	}
	return found
}

// live checks L1: no lock is free while a process waits for it.
func (r *Result) live() (found []history.Violation) {
	limit := noFaultsLimit
	if r.Plan.Engine == "row" { // its notifications may be lost at any time
		limit = idleLimit
	}
	for _, f := range r.History.Faults {
		limit = max(limit, idleLimit)
		if f.Kind == "kill-client" || f.Kind == "close-client" {
			limit += turn
		}
	}
	for _, key := range r.History.Keys {
		for _, g := range gaps(r.History, key) {
			if r.halfTaken(g) {
				continue
			}
			limit := limit
			if limit == noFaultsLimit {
				limit += time.Duration(r.gaveUp(g)) * turn
			}
			if time.Duration(g.to-g.from) > limit && quiet(r.History.Faults, g.from, g.to) {
				found = append(found, history.Violation{Invariant: "L1", Key: key, At: g.to, Records: []history.Record{g.waiter},
					Text: fmt.Sprintf("the lock was free for %v while process %d waited", history.Between(g.from, g.to), g.waiter.Proc)})
			}
		}
	}
	return found
}

// halfTaken reports whether a call for several locks was running in the time of g. Such a call
// holds the first locks before it returns.
func (r *Result) halfTaken(g gap) bool {
	return slices.ContainsFunc(r.History.Records, func(one history.Record) bool {
		return one.Op == history.Acquire && one.Several && one.Key == g.key && one.Call <= g.to && one.Ret >= g.from
	})
}

// gaveUp counts the calls for the lock of g that ended without it in that time, or just
// before it.
func (r *Result) gaveUp(g gap) (n int) {
	const moment = 50 * time.Millisecond
	for _, one := range r.History.Records {
		failed := one.Op == history.Acquire && one.Key == g.key && one.Outcome != history.OK
		if failed && one.Ret >= g.from-int64(moment) && one.Ret <= g.to {
			n++
		}
	}
	return n
}

// tenure is the longest time for which a plan lets a process hand a lease on.
const tenure = 100 * time.Millisecond

// turns checks L2: while other processes wait, a process hands a lease on to its own
// callers for at most its tenure.
func (r *Result) turns() (found []history.Violation) {
	leases, calls := map[string][]history.Record{}, map[string][]history.Record{}
	for _, one := range r.History.Records {
		switch {
		case one.Op == history.Grant && one.Outcome == history.OK:
			leases[one.Key] = append(leases[one.Key], one)
		case one.Op == history.Acquire && !one.Several && !one.Again:
			calls[one.Key] = append(calls[one.Key], one)
		}
	}
	for _, key := range r.History.Keys {
		for _, a := range calls[key] {
			lease, ok := leaseOf(a, leases[key])
			if a.Outcome != history.OK || !ok || time.Duration(a.Ret-lease.Ret) <= tenure+time.Millisecond || !quiet(r.History.Faults, lease.Call, a.Ret) {
				continue
			}
			i := slices.IndexFunc(calls[key], func(w history.Record) bool {
				return w.Proc != a.Proc && w.Call < lease.Ret && w.Ret > a.Ret
			})
			if i >= 0 {
				found = append(found, history.Violation{Invariant: "L2", Key: key, At: a.Ret, Records: []history.Record{lease, a},
					Text: fmt.Sprintf("process %d hands its lease on %v after it was granted, while process %d waits",
						a.Proc, history.Between(lease.Ret, a.Ret), calls[key][i].Proc)})
			}
		}
	}
	return found
}

// leaseOf returns the lease whose block of tokens has the token of hold. The next lease may use the
// unused rest of a block, so it is the last lease whose block begins at or below the token.
func leaseOf(hold history.Record, leases []history.Record) (lease history.Record, ok bool) {
	for _, l := range leases {
		if l.Proc == hold.Proc && l.Token <= hold.Token && hold.Token < l.Token+l.Tokens && (!ok || l.Token > lease.Token) {
			lease, ok = l, true
		}
	}
	return lease, ok && lease.Since == 0
}

// quiet reports whether no fault was in force at any moment of [from, to], or within aftermath
// before it.
func quiet(faults []history.Fault, from, to int64) bool {
	return !slices.ContainsFunc(faults, func(f history.Fault) bool {
		return f.Begin <= to && f.End+int64(aftermath) >= from
	})
}
