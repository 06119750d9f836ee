// Package readwrite changes what it holds for reading.
package readwrite

import (
	"context"
	"sync"
	"sync/atomic"
)

type node struct{ hits int }

type List struct {
	mu     sync.Mutex
	count  int
	reads  atomic.Int64
	prices map[int64]int64
	order  []int64
	fixed  [2]int
	first  *node
}

//lock:key="prices" read
func (l *List) Total(ctx context.Context, id int64) (total int64, err error) {
	l.count++                     // mistake readwrite: l.count is changed under the read side of "prices"
	l.prices[id] = 1              // mistake readwrite: l.prices[id] is changed
	l.order = append(l.order, id) // mistake readwrite: l.order is changed
	l.order[0], total = 1, 2      // mistake readwrite: l.order[0] is changed
	l.first.hits += 1             // mistake readwrite: l.first.hits is changed
	l.fixed[0] = 1                // mistake readwrite: l.fixed[0] is changed
	func() { l.count = 2 }()      // mistake readwrite: l.count is changed
	delete(l.prices, id)          // mistake readwrite: l.prices is changed
	clear(l.order)                // mistake readwrite: l.order is changed
	local := *l
	local.count++      // right: a copy
	l.reads.Add(1)     // right: is atomic
	total = l.order[0] // right: a read
	prices := map[int64]int64{}
	prices[id] = 1     // right: a variable of its own
	delete(prices, id) // right: a variable of its own
	return total, nil
}

//lock:key="prices" read
func (l *List) Cached(ctx context.Context, id int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prices[id] = 1 // right: a mutex guards it
	return nil
}

//lock:key="prices" write
func (l *List) Set(ctx context.Context, id int64) error {
	l.prices[id] = 1     // right: the write side
	delete(l.prices, id) // right: the write side
	return nil
}

//lock:key="prices" read
//lock:key="list:<id>"
func (l *List) Both(ctx context.Context, id int64) error {
	l.count++ // right: alone under the other lock
	return nil
}
