package use

import (
	"context"
	"time"

	"example.com/fencing/store"
	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct {
	store *store.Store
	last  uint64
}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error {
	token, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	if err := s.store.Save(ctx, id, token); err != nil {
		return err
	}
	if err := s.store.Book(ctx, store.Fence{Key: "order", Token: token}); err != nil {
		return err
	}
	if err := store.SaveAll(ctx, s.store, []int64{id}, token+0); err != nil {
		return err
	}
	return s.store.Put(ctx, id)
}

const zero = 0

//lock:key="order:<id>"
func (s *Service) Unfenced(ctx context.Context, id int64, w store.Writer) error {
	var n uint64 = 7
	if err := s.store.Save(ctx, id, 0); err != nil { // want `store.Store.Save is given no fencing token: 0 is a constant; pass that of lock.Token\(ctx\)`
		return err
	}
	if err := s.store.Save(ctx, id, zero); err != nil { // want `zero is a constant`
		return err
	}
	if err := s.store.Save(ctx, id, n); err != nil { // want `7 is a constant`
		return err
	}
	if err := s.store.Save(ctx, id, uint64(time.Now().UnixNano())); err != nil { // want `time.Now\(\).UnixNano\(\) is none`
		return err
	}
	if err := s.store.Save(ctx, id, uint64(time.Now().Unix())<<16+n); err != nil { // want `uint64\(time.Now\(\).Unix\(\)\) << 16 \+ n is none`
		return err
	}
	if err := s.store.Book(ctx, store.Fence{}); err != nil { // want `none of its fields is one`
		return err
	}
	if err := s.store.Book(ctx, store.Fence{Key: "order", Token: 3}); err != nil { // want `3 is a constant`
		return err
	}
	if err := store.SaveAll(ctx, s.store, nil, 9); err != nil { // want `store.SaveAll is given no fencing token: 9 is a constant`
		return err
	}
	if err := w.Write(ctx, 1); err != nil { // want `store.Writer.Write is given no fencing token: 1 is a constant`
		return err
	}
	if err := w.Plain(ctx, 1); err != nil { // has no annotation
		return err
	}
	return s.store.Put(context.Background(), id) // want `store.Store.Put takes its fencing token from the context, and context.Background\(\) owns no lock`
}

// What can't be determined is left alone.
func (s *Service) unknown(ctx context.Context, id int64, next func() uint64, fence store.Fence) error {
	if err := s.store.Save(ctx, id, s.last); err != nil {
		return err
	}
	if err := s.store.Book(ctx, fence); err != nil {
		return err
	}
	return s.store.Save(ctx, id, next())
}

func unowned(ctx context.Context) uint64 {
	token, _ := lock.Token(context.WithoutCancel(ctx)) // want `lock.Token finds no token: context.WithoutCancel\(ctx\) owns no lock`
	mine, _ := lock.TokenOf(ctx, "order:1")
	return token + mine
}

func meant(ctx context.Context, s *store.Store) error {
	return s.Save(ctx, 1, 0) //lockcheck:ignore fencing the first row, before any lock
}
