package long

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type S struct {
	self   *SWithLock
	locker *lock.Locker
}

//lock:key="x:<id>"
func (s *S) X(ctx context.Context, id int64) error {
	return s.self.Y(ctx, id)
}

//lock:key="y:<id>"
func (s *S) Y(ctx context.Context, id int64) error {
	return s.locker.Do(ctx, nil, "hand", func(ctx context.Context) error {
		key := SZKey(id)
		return s.locker.Do(ctx, nil, key, func(ctx context.Context) error { return nil }) // want `"hand" before "z:<id>", "z:<id>" before "x:<id>", "x:<id>" before "y:<id>", "y:<id>" before "hand"`
	})
}

//lock:key="z:<id>"
func (s *S) Z(ctx context.Context, id int64) error { return s.self.X(ctx, id) }

//lock:key="hand"
func (s *S) Hand(ctx context.Context) error { return nil }

// A contradiction that is meant.
//
//lock:key="p"
func (s *S) P(ctx context.Context) error { return s.self.Q(ctx) } //lockcheck:ignore order P runs at start only

//lock:key="q"
func (s *S) Q(ctx context.Context) error { return s.self.P(ctx) }
