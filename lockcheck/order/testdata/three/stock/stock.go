// Package stock is the first of three packages with a lock each.
package stock

import "context"

// Auditor is implemented by package audit, which this one does not know.
type Auditor interface {
	Note(ctx context.Context, id int64) error
}

type Service struct{ Audit Auditor }

//lock:key="stock:<sku>"
func (s *Service) Reserve(ctx context.Context, sku string, id int64) error {
	return s.note(ctx, id)
}

func (s *Service) note(ctx context.Context, id int64) error { return s.Audit.Note(ctx, id) }
