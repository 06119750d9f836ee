package kept

import (
	"context"

	"example.com/fencing/store"
	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	self  *ServiceWithLock
	store *store.Store
	token uint64
	epoch uint64
	set   uint64
}

// zero.

//lock:key="order:<id>"
func (s *Service) Zero(ctx context.Context, id int64) error {
	var token uint64
	if err := s.store.Save(ctx, id, token); err != nil { // want `store.Store.Save is given no fencing token: token is never given a value`
		return err
	}
	var fence store.Fence
	return s.store.Book(ctx, fence) // want `fence is never given a value`
}

//lock:key="order:<id>"
func (s *Service) Given(ctx context.Context, id int64) error {
	var token, later uint64
	token, _ = lock.Token(ctx)
	if err := s.store.Save(ctx, id, token); err != nil {
		return err
	}
	fill(&later)
	var fence store.Fence
	fence.Token = token
	if err := s.store.Book(ctx, fence); err != nil {
		return err
	}
	var inLoop uint64
	for range 2 {
		if err := s.store.Save(ctx, id, inLoop); err != nil {
			return err
		}
		inLoop = token
	}
	return s.store.Save(ctx, id, later)
}

func fill(token *uint64) { *token = 1 }

// A field that an earlier hold has set.

//lock:key="order:<id>"
func (s *Service) Begin(ctx context.Context, id int64) error {
	s.token, _ = lock.Token(ctx)
	return nil
}

//lock:key="order:<id>"
func (s *Service) Stale(ctx context.Context, id int64) error {
	return s.store.Save(ctx, id, s.token) // want `store.Store.Save may be given no fencing token: s.token keeps that of an earlier lock; ask lock.Token\(ctx\)`
}

//lock:key="order:<id>"
func (s *Service) Fresh(ctx context.Context, id int64) error {
	s.begin(ctx)
	return s.store.Save(ctx, id, s.set)
}

func (s *Service) begin(ctx context.Context) {
	token, ok := lock.Token(ctx)
	if ok {
		s.set = token
	}
}

// Set by who knows what.
//
//lock:key="order:<id>"
func (s *Service) Epoch(ctx context.Context, id int64) error {
	return s.store.Save(ctx, id, s.epoch)
}

// The ok that is dropped.

func (s *Service) Handler(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	if err := s.store.Save(ctx, id, token); err != nil { // want `may be given no fencing token: the ok of lock.Token\(ctx\) is dropped, and where no lock is held the token is 0`
		return err
	}
	asked, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	return s.store.Save(ctx, id, asked)
}

//lock:key="order:<id>"
func (s *Service) Locked(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx) // there is one: the wrapper has acquired it
	if err := s.store.Save(ctx, id, token); err != nil {
		return err
	}
	return s.save(ctx, id)
}

// save is called by a method that has the lock, and by no other.
func (s *Service) save(ctx context.Context, id int64) error {
	token, _ := lock.Token(ctx)
	return s.store.Save(ctx, id, token)
}

// Two locks.

//lock:key="order:<id>"
//lock:key="stock:<id>"
func (s *Service) Both(ctx context.Context, id int64) error {
	token, ok := lock.Token(ctx) // want `lock.Token finds no token: kept.Service.Both runs under "order:<id>" and "stock:<id>"; name one with lock.TokenOf`
	if !ok {
		return lock.ErrLost
	}
	order, ok := lock.TokenOf(ctx, "order:1")
	if !ok {
		return lock.ErrLost
	}
	return s.store.Save(ctx, id, token+order)
}

func held(ctx context.Context, l *lock.Locker, s *store.Store) (err error) {
	ctx, held, err := l.Acquire(ctx, nil, "order:1")
	if err != nil {
		return err
	}
	defer held.Release(&err)
	return s.Save(ctx, 1, held.Token())
}
