// Package prices shows kinds of locks other than the mutex: a read-write lock for a price list
// that many read and few change, and a semaphore for a download that few may run at once.
package prices

import (
	"context"
	"maps"
)

//go:generate go run ../../cmd/lockgen

// List is a price list that all processes of a shop share.
type List struct {
	store Store
}

// Store is where the prices are, such as a database.
type Store interface {
	Load(ctx context.Context) (map[int64]int64, error)
	Save(ctx context.Context, prices map[int64]int64, token uint64) error
}

// NewList returns the list of the prices in s.
func NewList(s Store) *List { return &List{store: s} }

// Total returns what the articles cost together. No price changes meanwhile.
//
//lock:key="prices" read ttl=10s
func (l *List) Total(ctx context.Context, articles ...int64) (total int64, err error) {
	all, err := l.store.Load(ctx)
	for _, article := range articles {
		total += all[article]
	}
	return total, err
}

// Raise raises all prices by so many percent. Nobody reads them half raised.
//
//lock:key="prices" write ttl=10s
func (l *List) Raise(ctx context.Context, percent int64) error {
	all, err := l.store.Load(ctx)
	if err != nil {
		return err
	}
	raised := maps.Clone(all)
	for article, price := range raised {
		raised[article] = price + price*percent/100
	}
	return l.save(ctx, raised)
}

// Fetch fetches the list of a supplier, who allows three downloads at a time, over all
// machines. Of those that wait the hundred first are served; the others are told at once
// to come back later.
//
//lock:key="prices:fetch" permits=3 queue=100 wait=30s
func (l *List) Fetch(ctx context.Context, download func(context.Context) error) error {
	return download(ctx)
}
