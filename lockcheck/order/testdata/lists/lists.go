// Package lists locks each element of a list.
package lists

import "context"

type Shop struct {
	self  *ShopWithLock
	audit *AuditWithLock
}

type Audit struct{ shop *ShopWithLock }

//lock:key="stock:<ids...>"
func (s *Shop) Sell(ctx context.Context, ids, gifts []int64) error {
	if err := s.self.Pack(ctx, ids); err != nil { // want `"stock:<ids...>" is held already`
		return err
	}
	if err := s.self.Wrap(ctx, ids); err != nil {
		return err
	}
	// One of the list, or of both lists: that is not known.
	if err := s.self.Count(ctx, gifts[0]); err != nil {
		return err
	}
	if err := s.self.Pack(ctx, gifts); err != nil {
		return err
	}
	return s.audit.Note(ctx)
}

//lock:key="stock:<ids...>"
func (s *Shop) Pack(ctx context.Context, ids []int64) error { return nil }

//lock:key="stock:<ids...>" reentrant
func (s *Shop) Wrap(ctx context.Context, ids []int64) error { return nil }

//lock:key="stock:<id>"
func (s *Shop) Count(ctx context.Context, id int64) error { return nil }

//lock:key="audit"
func (a *Audit) Note(ctx context.Context) error {
	return a.shop.Count(ctx, 1) // want `orders that contradict each other: "audit" before "stock:<id>", "stock:<ids...>" before "audit"`
}
