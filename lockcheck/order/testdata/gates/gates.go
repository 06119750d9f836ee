// Package gates has orders that differ and can't deadlock.
package gates

import "context"

type S struct{ self *SWithLock }

//lock:key="gate"
//lock:key="a:<id>"
func (s *S) A(ctx context.Context, id int64) error { return s.self.PlainB(ctx, id) }

//lock:key="gate"
//lock:key="b:<id>"
func (s *S) B(ctx context.Context, id int64) error { return s.self.PlainA(ctx, id) }

//lock:key="a:<id>"
func (s *S) PlainA(ctx context.Context, id int64) error { return nil }

//lock:key="b:<id>"
func (s *S) PlainB(ctx context.Context, id int64) error { return nil }

// Who does not wait blocks no one.
//
//lock:key="c:<id>"
func (s *S) C(ctx context.Context, id int64) error { return s.self.D(ctx, id) }

//lock:key="d:<id>" try
func (s *S) D(ctx context.Context, id int64) error { return s.self.C(ctx, id) }

// One order only.
//
//lock:key="e:<id>"
func (s *S) E(ctx context.Context, id int64) error { return s.self.F(ctx, id) }

//lock:key="f:<id>"
func (s *S) F(ctx context.Context, id int64) error { return nil }

// Two engines.
//
//lock:key="g"
func (s *S) G(ctx context.Context) error { return s.self.H(ctx) }

//lock:key="h"
func (s *S) H(ctx context.Context) error { return s.self.OtherG(ctx) }

//lock:key="g" backend=other
func (s *S) OtherG(ctx context.Context) error { return nil }
