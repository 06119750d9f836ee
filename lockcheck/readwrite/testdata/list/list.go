package list

import (
	"context"
	"sync"
)

type node struct{ hits int }

type List struct {
	mu     sync.Mutex
	count  int
	prices map[int64]int64
	order  []int64
	fixed  [2]int
	first  *node
	inner  node
	turn   chan struct{}
}

//lock:key="prices" read
func (l *List) Total(ctx context.Context, id int64) (total int64, err error) {
	l.count++                     // want `l\.count is changed under the read side of "prices", which others have at the same time: say write`
	l.prices[id] = 1              // want `l\.prices\[id\] is changed`
	l.order = append(l.order, id) // want `l\.order is changed`
	l.order[0], total = 1, 2      // want `l\.order\[0\] is changed`
	l.first.hits += 1             // want `l\.first\.hits is changed`
	(*l).inner.hits--             // want `\(\*l\)\.inner\.hits is changed`
	l.fixed[0] = 1                // want `l\.fixed\[0\] is changed`
	for l.count = range l.order { // want `l\.count is changed`
	}
	func() { l.count = 2 }()   // want `l\.count is changed`
	copy(l.order[1:], l.order) // want `l\.order\[1:\] is changed`
	clear(l.fixed[:])          // want `l\.fixed\[:\] is changed`
	l.order[1:][0] = 1         // want `l\.order\[1:\]\[0\] is changed`
	*l = List{}                // want `\*l is changed`

	local := *l
	local.count++ // a copy
	total = int64(l.count)
	for id, price := range l.prices {
		total += id * price
	}
	return total, nil
}

//lock:key="prices" read
func (l *List) Own(ctx context.Context) error {
	l = &List{}
	l.count++ // its own
	return nil
}

//lock:key="prices" read
func (l *List) Elsewhere(ctx context.Context, under func(func())) error {
	under(func() { l.count++ }) // perhaps under another lock
	return nil
}

//lock:key="prices" read
func (l *List) Channel(ctx context.Context) error {
	l.turn <- struct{}{}
	l.count++
	<-l.turn
	return nil
}

//lock:key="prices" read
func (l List) ByValue(ctx context.Context, id int64) error {
	l.count++         // of a copy
	l.fixed[0] = 1    // likewise
	clear(l.fixed[:]) // likewise
	l.inner.hits = 1  // likewise
	l.prices[id] = 1  // want `l\.prices\[id\] is changed`
	l.first.hits = 1  // want `l\.first\.hits is changed`
	return nil
}

// Cached guards its cache by a mutex of its own.
//
//lock:key="prices" read
func (l *List) Cached(ctx context.Context, id int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prices[id] = 1
	return nil
}

//lock:key="prices" write
func (l *List) Set(ctx context.Context, id, price int64) error {
	l.prices[id] = price
	l.count++
	return nil
}

//lock:key="prices" read
//lock:key="list:<id>"
func (l *List) Both(ctx context.Context, id int64) error {
	l.count++ // alone under the other
	return nil
}

func (l *List) plain() { l.count++ }

//lock:key="other" read
func (*List) Nameless(ctx context.Context) error { return nil }

//lock:key="ignored" read
func (l *List) Ignored(ctx context.Context) error {
	l.count++ //lockcheck:ignore readwrite counted roughly
	return nil
}
