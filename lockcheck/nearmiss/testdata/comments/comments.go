package comments

import "context"

type Service struct{}

// lock:key="order:<id>" ttl=5s // want `this comment is no directive, so the method would not be locked`
func (s *Service) Space(ctx context.Context, id int64) error { return nil }

//Lock:key="order:<id>" // want `this comment is no directive`
func (s *Service) Capital(ctx context.Context, id int64) error { return nil }

//lock: key="order:<id>" // want `this comment is no directive`
func (s *Service) Parted(ctx context.Context, id int64) error { return nil }

/* lock:key="order:<id>" */ // want `a block comment is no directive`
func (s *Service) Block(ctx context.Context, id int64) error { return nil }

// A remark about the lock: the key is kept for a minute. That is prose.
func (s *Service) Prose(ctx context.Context, id int64) error { return nil }

//lockcheck:ignore nearmiss it quotes a mistake
// lock:key="order:<id>"
func (s *Service) Quoted(ctx context.Context, id int64) error { return nil }
