// Package fencing writes without the token that a store could refuse.
package fencing

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

type Fence struct {
	Key   string
	Token uint64
}

type Store struct{}

// Save is fenced by its token.
//
//lockcheck:fence token
func (s *Store) Save(ctx context.Context, id int64, token uint64) error { return nil }

// Book is fenced by the token of fence.
//
//lockcheck:fence fence
func (s *Store) Book(ctx context.Context, fence Fence) error { return nil }

// Put asks for the token itself.
//
//lockcheck:fence
func (s *Store) Put(ctx context.Context, id int64) error { // right: it asks for its token
	token, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	return s.Save(ctx, id, token)
}

// PutDeep asks in a helper.
//
//lockcheck:fence
func (s *Store) PutDeep(ctx context.Context, id int64) error { // right: current asks for its token
	return s.Save(ctx, id, current(ctx))
}

func current(ctx context.Context) uint64 {
	token, _ := lock.Token(ctx)
	return token
}

// Forgetful never asks.
//
//lockcheck:fence
func (s *Store) Forgetful(ctx context.Context, id int64) error { // mistake fencing: is to be fenced and asks for no token
	return nil
}

// Plain has no annotation.
func (s *Store) Plain(ctx context.Context, token uint64) error { return nil }

// All passes its token on.
func All(ctx context.Context, s *Store, ids []int64, token uint64) error {
	for _, id := range ids {
		if err := s.Save(ctx, id, token); err != nil { // right: the callers are looked at
			return err
		}
	}
	return nil
}

type Service struct {
	store *Store
	token uint64
	epoch uint64
	count atomic.Uint64
}

const first = 1

func check(err error) {}

//lock:key="order:<id>"
func (s *Service) Constants(ctx context.Context, id int64) error {
	var seven uint64 = 7
	check(s.store.Save(ctx, id, 0))                             // mistake fencing: 0 is a constant
	check(s.store.Save(ctx, id, first))                         // mistake fencing: first is a constant
	check(s.store.Save(ctx, id, seven))                         // mistake fencing: 7 is a constant
	check(s.store.Save(ctx, id, uint64(id)))                    // unseen fencing: a parameter may be a token that came by another way
	check(s.store.Save(ctx, id, uint64(time.Now().UnixNano()))) // mistake fencing: time.Now().UnixNano() is none
	check(s.store.Save(ctx, id, rand.Uint64()))                 // mistake fencing: rand.Uint64() is none
	check(s.store.Save(ctx, id, s.count.Add(1)))                // mistake fencing: s.count.Add(1) is none
	check(s.store.Book(ctx, Fence{}))                           // mistake fencing: none of its fields is one
	check(s.store.Book(ctx, Fence{Key: "order", Token: 3}))     // mistake fencing: 3 is a constant
	check(All(ctx, s.store, nil, 9))                            // mistake fencing: All is given no fencing token: 9 is a constant
	check(s.store.Plain(ctx, 0))                                // right: has no annotation
	return nil
}

//lock:key="order:<id>"
func (s *Service) Zero(ctx context.Context, id int64) error {
	var token uint64
	var fence Fence
	check(s.store.Save(ctx, id, token)) // mistake fencing: token is never given a value
	check(s.store.Book(ctx, fence))     // mistake fencing: fence is never given a value
	var later, filled uint64
	later, _ = lock.Token(ctx)
	fill(&filled)
	check(s.store.Save(ctx, id, later))  // right: is given one
	check(s.store.Save(ctx, id, filled)) // right: fill has its address
	var round uint64
	for range 2 {
		check(s.store.Save(ctx, id, round)) // right: the second round has one
		round = later
	}
	var late Fence
	late.Token = later
	return s.store.Book(ctx, late) // right: its field is given one
}

func fill(token *uint64) { *token, _ = 1, true }

//lock:key="order:<id>"
func (s *Service) Begin(ctx context.Context, id int64) error {
	s.token, _ = lock.Token(ctx)
	return s.store.Save(ctx, id, s.token) // right: it is that of this lock
}

//lock:key="order:<id>"
func (s *Service) Stale(ctx context.Context, id int64) error {
	check(s.store.Save(ctx, id, s.token))             // mistake fencing: s.token keeps that of an earlier lock
	check(s.store.Book(ctx, Fence{"order", s.token})) // mistake fencing: s.token keeps that of an earlier lock
	return s.store.Save(ctx, id, s.epoch)             // right: is set by who knows what
}

//lock:key="order:<id>"
func (s *Service) Rightly(ctx context.Context, id int64, next func() uint64) error {
	token, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	check(s.store.Save(ctx, id, token))                         // right: the lock's
	check(s.store.Save(ctx, id, token+0))                       // right: made from the lock's
	check(s.store.Book(ctx, Fence{Key: "order", Token: token})) // right: the lock's
	check(s.store.Book(ctx, Fence{"order", token}))             // right: the lock's
	check(All(ctx, s.store, []int64{id}, token))                // right: the lock's
	check(s.store.Save(ctx, id, max(token, uint64(id))))        // right: no less than the lock's
	of, _ := lock.TokenOf(ctx, "order:1")
	check(s.store.Save(ctx, id, of))     // right: one lock is named
	check(s.store.Save(ctx, id, next())) // right: can't be determined
	return s.store.Put(ctx, id)          // right: the context owns the lock
}

//lock:key="order:<id>"
func (s *Service) Contexts(ctx context.Context, id int64) error {
	check(s.store.Put(context.Background(), id))       // mistake fencing: context.Background() owns no lock
	check(s.store.Put(context.WithoutCancel(ctx), id)) // mistake fencing: context.WithoutCancel(ctx) owns no lock
	check(s.store.Put(lock.Detach(ctx), id))           // mistake fencing: lock.Detach(ctx) owns no lock
	token, _ := lock.Token(context.Background())       // mistake fencing: lock.Token finds no token
	timeout, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	check(s.store.Put(timeout, id)) // right: is made from the lock's
	_ = token
	return nil
}

// Handler holds no lock.
func (s *Service) Handler(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	check(s.store.Save(ctx, id, token)) // mistake fencing: the ok of lock.Token(ctx) is dropped
	asked, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	return s.store.Save(ctx, id, asked) // right: ok is asked
}

//lock:key="order:<id>"
//lock:key="stock:<id>"
func (s *Service) Both(ctx context.Context, id int64) error {
	token, ok := lock.Token(ctx)                          // mistake fencing: runs under "order:<id>" and "stock:<id>"
	order, named := lock.TokenOf(ctx, ServiceBothKey(id)) // right: one lock is named
	if !ok || !named {
		return lock.ErrLost
	}
	return s.store.Save(ctx, id, token+order)
}

func byHand(ctx context.Context, l *lock.Locker, s *Store) (err error) {
	ctx, held, err := l.Acquire(ctx, nil, "order:1")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	return s.Save(ctx, 1, held.Token()) // right: the hold's
}

func meant(ctx context.Context, s *Store) error {
	return s.Save(ctx, 1, 0) //lockcheck:ignore fencing right: the first row, before any lock
}
