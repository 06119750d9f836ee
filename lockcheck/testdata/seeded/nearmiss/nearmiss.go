// Package nearmiss has comments that were meant as directives.
package nearmiss

import "context"

type Service struct{}

// mistake nearmiss: this comment is no directive
// lock:key="order:<id>"
func (s *Service) Space(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//Lock:key="order:<id>"
func (s *Service) Capital(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//lock: key="order:<id>"
func (s *Service) Parted(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: a block comment is no directive
/* lock:key="order:<id>" */
func (s *Service) Block(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//go:lock key="order:<id>"
func (s *Service) GoLock(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//+lock:key="order:<id>"
func (s *Service) Plus(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
// @Lock(key="order:<id>")
func (s *Service) At(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//lock(key="order:<id>")
func (s *Service) Call(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//lock.key="order:<id>"
func (s *Service) Dot(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//lock：key="order:<id>"
func (s *Service) FullWidth(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//lcok:key="order:<id>"
func (s *Service) Letters(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: this comment is no directive
//locks:key="order:<id>"
func (s *Service) Plural(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: expire
//
//lock:key="order:<id>" expire=5s
func (s *Service) Expire(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: ${id}
//
//lock:key="order:${id}"
func (s *Service) Dollar(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: %d
//
//lock:key="order:%d"
func (s *Service) Percent(ctx context.Context, id int64) error { return nil }

// mistake nearmiss: quote
//
//lock:key='order:<id>'
func (s *Service) Quote(ctx context.Context, id int64) error { return nil }

func body(ctx context.Context) {
	// mistake nearmiss: lock
	//lock:key="order:1"
	_ = ctx
}

// right: a remark about the lock, whose key is kept for a minute
func (s *Service) Prose(ctx context.Context, id int64) error { return nil }

// right: lock the door: key="under the mat"
func (s *Service) Sentence(ctx context.Context, id int64) error { return nil }

// right: locked until the caller has paid
func (s *Service) Locked(ctx context.Context, id int64) error { return nil }

// right: the lock(s) of an order are taken before
func (s *Service) Several(ctx context.Context, id int64) error { return nil }

// right: blocks: key by key
//
//nolint:errcheck
func (s *Service) Nolint(ctx context.Context, id int64) error { return nil }

// right: a directive of another tool
//
//go:noinline
func (s *Service) Other(ctx context.Context, id int64) error { return nil }

// right: a directive
//
//lock:key="order:<id>:{x}"
func (s *Service) Braces(ctx context.Context, id int64) error { return nil }

// right: a percent sign in a literal
//
//lock:key="rate%:<id>"
func (s *Service) PercentSign(ctx context.Context, id int64) error { return nil }

// right: silenced with a reason
//
//lockcheck:ignore nearmiss it quotes a mistake
// lock:key="order:<id>"
func (s *Service) Quoted(ctx context.Context, id int64) error { return nil }
