package calls

import "context"

type Service struct{ region string }

//lock:key="order:<id>" ttl=5s
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="order:<id>" reentrant
func (s *Service) Book(ctx context.Context, id int64) error {
	return s.Pay(ctx, id) // want `calls.Service.Pay is called without its lock "order:<id>": ServiceWithLock.Pay takes it`
}

func (s *Service) free(ctx context.Context) error { return nil }

// Of the type's own methods this one has no lock either.
func (s *Service) PayAll(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		if err := s.Pay(ctx, id); err != nil { // want `is called without its lock`
			return err
		}
	}
	return s.free(ctx)
}

func outside(ctx context.Context, s *Service, w *ServiceWithLock) error {
	if err := w.Pay(ctx, 1); err != nil {
		return err
	}
	if err := w.serviceInner.Pay(ctx, 1); err != nil { // want `is called without its lock`
		return err
	}
	pay := s.Pay                                // want `calls.Service.Pay is used without its lock`
	expr := (*Service).Pay                      // want `is used without its lock`
	go func() { _ = Service{}.region }()        // another member
	_ = func() error { return (s).Pay(ctx, 2) } // want `is called without its lock`
	_, _ = pay, expr
	return w.free(ctx)
}

// Embedding passes the raw method on.
type Outer struct{ *Service }

type Guarded struct{ *ServiceWithLock }

func embedded(ctx context.Context, o Outer, g Guarded) error {
	if err := g.Pay(ctx, 1); err != nil {
		return err
	}
	return o.Pay(ctx, 1) // want `is called without its lock`
}

func meant(ctx context.Context, s *Service) error {
	//lockcheck:ignore bypass the migration runs alone
	if err := s.Pay(ctx, 1); err != nil {
		return err
	}
	return s.Pay(ctx, 2) //lockcheck:ignore bypass the migration runs alone
}

// migrate runs alone.
//
//lockcheck:ignore bypass the migration runs alone
func migrate(ctx context.Context, s *Service) error {
	if err := s.Pay(ctx, 1); err != nil {
		return err
	}
	return s.Pay(ctx, 3)
}

// An ignore without a reason, or for another check, silences nothing.
func notMeant(ctx context.Context, s *Service) error {
	//lockcheck:ignore bypass
	if err := s.Pay(ctx, 1); err != nil { // want `is called without its lock`
		return err
	}
	//lockcheck:ignore order another check
	return s.Pay(ctx, 3) // want `is called without its lock`
}

type Generic[T any] struct{ last T }

//lock:key="generic"
func (g *Generic[T]) Set(ctx context.Context, v T) error { return nil }

func generic(ctx context.Context, g *Generic[int], w *GenericWithLock[int]) error {
	if err := w.Set(ctx, 1); err != nil {
		return err
	}
	return g.Set(ctx, 1) // want `calls.Generic.Set is called without its lock "generic"`
}
