package store

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type Fence struct {
	Key   string
	Token uint64
}

type Store struct{}

// Save writes under a token.
//
//lockcheck:fence token
func (s *Store) Save(ctx context.Context, id int64, token uint64) error { return nil }

//lockcheck:fence fence
func (s *Store) Book(ctx context.Context, fence Fence) error { return nil }

// Put takes the token from the context.
//
//lockcheck:fence
func (s *Store) Put(ctx context.Context, id int64) error {
	token, ok := lock.Token(ctx)
	if !ok {
		return lock.ErrLost
	}
	return s.Save(ctx, id, token)
}

//lockcheck:fence
func (s *Store) PutDeep(ctx context.Context, id int64) error {
	return s.Save(ctx, id, current(ctx))
}

func current(ctx context.Context) uint64 {
	token, _ := lock.Token(ctx)
	return token
}

//lockcheck:fence
func (s *Store) Forgetful(ctx context.Context, id int64) error { // want `store.Store.Forgetful is to be fenced and asks for no token`
	return nil
}

//lockcheck:fence tokne // want `store.Store.Misnamed has no parameter tokne`
func (s *Store) Misnamed(ctx context.Context, token uint64) error { return nil }

type Writer interface {
	//lockcheck:fence token
	Write(ctx context.Context, token uint64) error
	Plain(ctx context.Context, token uint64) error
}

// SaveAll passes the duty on.
func SaveAll(ctx context.Context, s *Store, ids []int64, token uint64) error {
	for _, id := range ids {
		if err := s.Save(ctx, id, token); err != nil {
			return err
		}
	}
	return nil
}
