package locks

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

const (
	// pageLength is how many lines of a list are shown at once.
	pageLength = 50
	// fresh is for how long one snapshot is used for all viewers of the page.
	fresh = 500 * time.Millisecond
)

// shot is the last snapshot of the watched Lockers. Its mutex keeps viewers from taking a
// Snapshot each.
type shot struct {
	mu  sync.Mutex
	at  time.Time
	all lock.Snapshot
}

// snapshot returns what all watched Lockers hold and wait for, sorted as by
// [lock.Locker.Snapshot], and when that was. The caller must not change it.
func (m *Monitor) snapshot() (*lock.Snapshot, time.Time) {
	m.shot.mu.Lock()
	defer m.shot.mu.Unlock()
	now := time.Now()
	if now.Sub(m.shot.at) < fresh {
		all := m.shot.all
		return &all, m.shot.at
	}
	m.mu.Lock()
	lockers := make([]*lock.Locker, 0, len(m.watched))
	for at := range m.watched {
		if l := at.Value(); l != nil {
			lockers = append(lockers, l)
		}
	}
	m.mu.Unlock()
	var all lock.Snapshot
	for _, l := range lockers {
		one := l.Snapshot()
		all.Holds = append(all.Holds, one.Holds...)
		all.Waiters = append(all.Waiters, one.Waiters...)
		all.Orders = append(all.Orders, one.Orders...)
		all.CleanUps += one.CleanUps
	}
	if len(lockers) > 1 {
		slices.SortStableFunc(all.Holds, func(a, b lock.HeldLock) int {
			return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Key, b.Key))
		})
		slices.SortStableFunc(all.Waiters, func(a, b lock.WaitingCall) int {
			return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Key, b.Key))
		})
	}
	m.shot.at, m.shot.all = now, all
	return &all, now
}

// patternRow is a line of the list of patterns.
type patternRow struct {
	Method, Pattern, Backend string
	Holds, Waiters           int
	Longest                  time.Duration // that a call has waited so far
	Counts                   counts
	P50, P99, HoldP99        *time.Duration // nil if nothing was measured
}

// patterns returns a line for each label, those with the most waiting calls first.
func (m *Monitor) patterns(all *lock.Snapshot, now time.Time) []patternRow {
	byLabel := map[label]*patternRow{}
	line := func(at label) *patternRow {
		p := byLabel[at]
		if p == nil {
			p = &patternRow{Method: at.method, Pattern: at.pattern, Backend: at.backend}
			byLabel[at] = p
		}
		return p
	}
	for i := range all.Holds {
		h := &all.Holds[i]
		line(label{h.Method, h.Pattern, h.Backend}).Holds++
	}
	for i := range all.Waiters {
		w := &all.Waiters[i]
		p := line(label{w.Method, w.Pattern, w.Backend})
		p.Waiters++
		p.Longest = max(p.Longest, now.Sub(w.Since))
	}
	for at, r := range *m.rows.Load() {
		line(at).add(r, now)
	}
	if m.others.used() {
		line(m.others.label).add(m.others, now)
	}
	lines := make([]patternRow, 0, len(byLabel))
	for _, p := range byLabel {
		lines = append(lines, *p)
	}
	slices.SortFunc(lines, func(a, b patternRow) int {
		return cmp.Or(cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(b.Holds, a.Holds), cmp.Compare(a.Pattern, b.Pattern),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Backend, b.Backend))
	})
	return lines
}

func (r *row) used() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts != counts{}
}

func (p *patternRow) add(r *row, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Counts = r.counts
	known := func(d time.Duration, ok bool) *time.Duration {
		if !ok {
			return nil
		}
		return &d
	}
	p.P50, p.P99 = known(r.wait.percentile(now, 50)), known(r.wait.percentile(now, 99))
	p.HoldP99 = known(r.hold.percentile(now, 99))
}

// orderRow is a line of the list of orders: a lock that is taken inside of another.
type orderRow struct {
	lock.Order
	Holds, Waiters int // of the outer pattern, and of the inner one, now
}

// ordersOf returns a line for each order that was seen, those in a cycle first.
func ordersOf(all *lock.Snapshot) []orderRow {
	holds, waiters := byPattern(all)
	lines := make([]orderRow, 0, len(all.Orders))
	for _, o := range all.Orders {
		lines = append(lines, orderRow{o, holds[label{pattern: o.Outer, backend: o.OuterBackend}], waiters[label{pattern: o.Inner, backend: o.InnerBackend}]})
	}
	slices.SortStableFunc(lines, func(a, b orderRow) int {
		if a.Cycle != b.Cycle {
			if a.Cycle {
				return -1
			}
			return 1
		}
		return 0
	})
	return lines
}

// byPattern returns how many locks of each pattern are held and waited for, over all methods.
func byPattern(all *lock.Snapshot) (holds, waiters map[label]int) {
	holds, waiters = map[label]int{}, map[label]int{}
	for i := range all.Holds {
		holds[label{pattern: all.Holds[i].Pattern, backend: all.Holds[i].Backend}]++
	}
	for i := range all.Waiters {
		waiters[label{pattern: all.Waiters[i].Pattern, backend: all.Waiters[i].Backend}]++
	}
	return holds, waiters
}

// keyRow is a line of the list of keys.
type keyRow struct {
	Backend, Key string
	Hold         *lock.HeldLock // the one that has lasted longest, or nil
	Holds        int
	Waiters      int
	Since        time.Time // of the longest wait
}

// keys returns a line for each key, first those with the most waiting calls, then those that have
// been held longest.
func keys(all *lock.Snapshot) []keyRow {
	lines := make([]keyRow, 0, len(all.Holds))
	holds, waiters := all.Holds, all.Waiters
	for len(holds)+len(waiters) > 0 {
		var k keyRow
		if len(waiters) == 0 || len(holds) > 0 && cmp.Or(cmp.Compare(holds[0].Backend, waiters[0].Backend), cmp.Compare(holds[0].Key, waiters[0].Key)) <= 0 {
			k.Backend, k.Key = holds[0].Backend, holds[0].Key
		} else {
			k.Backend, k.Key = waiters[0].Backend, waiters[0].Key
		}
		for ; len(holds) > 0 && holds[0].Backend == k.Backend && holds[0].Key == k.Key; holds = holds[1:] {
			if k.Holds++; k.Hold == nil || holds[0].Since.Before(k.Hold.Since) {
				k.Hold = &holds[0]
			}
		}
		for ; len(waiters) > 0 && waiters[0].Backend == k.Backend && waiters[0].Key == k.Key; waiters = waiters[1:] {
			if k.Waiters++; k.Waiters == 1 || waiters[0].Since.Before(k.Since) {
				k.Since = waiters[0].Since
			}
		}
		lines = append(lines, k)
	}
	slices.SortFunc(lines, func(a, b keyRow) int {
		switch {
		case a.Waiters != b.Waiters:
			return b.Waiters - a.Waiters
		case a.Hold != nil && b.Hold != nil:
			return a.Hold.Since.Compare(b.Hold.Since)
		case a.Hold != nil:
			return 1 // waited for, and held elsewhere: first
		case b.Hold != nil:
			return -1
		}
		return a.Since.Compare(b.Since)
	})
	return lines
}

// ofKey returns the holds of key, and the calls that wait for it in the order of the queue.
func ofKey(all *lock.Snapshot, backend, key string) (holds []lock.HeldLock, waiters []lock.WaitingCall) {
	for i := range all.Holds {
		if all.Holds[i].Backend == backend && all.Holds[i].Key == key {
			holds = append(holds, all.Holds[i])
		}
	}
	for i := range all.Waiters {
		if all.Waiters[i].Backend == backend && all.Waiters[i].Key == key {
			waiters = append(waiters, all.Waiters[i])
		}
	}
	slices.SortStableFunc(waiters, func(a, b lock.WaitingCall) int { // the call that asks the engine comes before the queue
		if a.AtEngine != b.AtEngine {
			if a.AtEngine {
				return -1
			}
			return 1
		}
		return 0
	})
	return holds, waiters
}

// list is the part of a list that is shown, with links to the parts before and after it.
type list[T any] struct {
	Lines          []T
	First, Total   int    // First counts from 1
	Before, Beyond string // queries of these parts; empty if there is none
}

// Last is the number of the last line that is shown.
func (l list[T]) Last() int { return l.First + len(l.Lines) - 1 }

// cut returns the page of lines that the query asks for by its parameter name.
func cut[T any](lines []T, query url.Values, name string) list[T] {
	last := max(len(lines)-1, 0) / pageLength
	at, err := strconv.Atoi(query.Get(name))
	if err != nil {
		at = 0
	}
	at = min(max(at, 0), last)
	first := at * pageLength
	l := list[T]{Lines: lines[first:min(first+pageLength, len(lines))], First: first + 1, Total: len(lines)}
	if at > 0 {
		l.Before = with(query, name, strconv.Itoa(at-1))
	}
	if at < last {
		l.Beyond = with(query, name, strconv.Itoa(at+1))
	}
	return l
}

// with returns query with one parameter changed.
func with(query url.Values, name, value string) string {
	changed := url.Values{}
	for _, known := range []string{"key", "backend", "patterns", "keys", "orders", "queue"} {
		if v := query.Get(known); v != "" {
			changed.Set(known, v)
		}
	}
	changed.Set(name, value)
	return "?" + changed.Encode()
}
