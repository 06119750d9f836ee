package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	// idleLimit is how long a lock may lie free while a process waits for it and no fault
	// is in force: a lost notification costs a second, and a turn that the first in line
	// does not take half of one. Each process that died in the line costs a turn as well.
	idleLimit, turn = 1600 * time.Millisecond, 500 * time.Millisecond
	// calmLimit is idleLimit where nothing was wrong in all of the episode. Each process
	// that gave up at that moment costs a turn.
	calmLimit = 150 * time.Millisecond
	// aftermath is for how long a fault excuses what comes after it.
	aftermath = time.Second
)

// gap is a time in which a lock was free while somebody waited for it.
type gap struct {
	key      string
	from, to int64
	waiter   history.Record
}

// gaps returns the gaps of a key's locks, by the records of the callers.
func gaps(h *history.History, key string) (found []gap) {
	var acquires, releases []history.Record
	for _, r := range h.Records {
		switch {
		case r.Key != key || r.Ret == history.Never:
		case r.Op == history.Acquire && !r.Several: // several hold the first before they are told
			if r.Again { // it waited for a condition first
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
		// The next grant is behind this release; a later release ends a hold in between.
		for _, a := range acquires {
			if a.Outcome == history.OK && a.Ret >= r.Call {
				next = min(next, a.Ret)
				break
			}
		}
		longest := gap{key: key}
		for _, w := range acquires { // those that came since as well: the lease may be kept idle
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

// live checks L1: no lock lies free while somebody waits for it.
func (r *Result) live() (found []history.Violation) {
	limit := calmLimit
	if r.Plan.Engine == "row" { // whose notifications may be lost at any time
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
			if limit == calmLimit {
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

// halfTaken reports whether a call for several locks was under way in the time of g: it
// holds the first before it is told so.
func (r *Result) halfTaken(g gap) bool {
	return slices.ContainsFunc(r.History.Records, func(one history.Record) bool {
		return one.Op == history.Acquire && one.Several && one.Key == g.key && one.Call <= g.to && one.Ret >= g.from
	})
}

// gaveUp counts the calls for the lock of g that ended without it in that time, or a
// moment before.
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

// tenure is the longest that a plan lets a process hand a lease on.
const tenure = 100 * time.Millisecond

// turns checks L2: a process that others wait for does not go on handing a lease on to
// its own callers for longer than its tenure.
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

// leaseOf returns the lease that a hold has its token of. What a lease did not use of its
// block the next may use, so it is the last that begins below.
func leaseOf(hold history.Record, leases []history.Record) (lease history.Record, ok bool) {
	for _, l := range leases {
		if l.Proc == hold.Proc && l.Token <= hold.Token && hold.Token < l.Token+l.Tokens && (!ok || l.Token > lease.Token) {
			lease, ok = l, true
		}
	}
	return lease, ok && lease.Since == 0
}

// quiet reports whether no fault was in force at any moment of [from, to], nor a while
// before.
func quiet(faults []history.Fault, from, to int64) bool {
	return !slices.ContainsFunc(faults, func(f history.Fault) bool {
		return f.Begin <= to && f.End+int64(aftermath) >= from
	})
}
