package items

import "context"

type Service struct{}

//lock:key="lead" leader
func (s *Service) Lead(ctx context.Context) error { return nil }

//lock:key="close" once="<day>" skip
func (s *Service) Close(ctx context.Context, day string) (int, error) { return 0, nil }

//lock:key="buy:<id>" merge=64
func (s *Service) Buy(ctx context.Context, id int64, reqs []string) ([]string, error) {
	return reqs, nil
}

//lock:key="fresh" try fallback=stale
func (s *Service) Fresh(ctx context.Context) error { return nil }

func (s *Service) stale(ctx context.Context) error { return nil }

func dropped(ctx context.Context, w *ServiceWithLock, s *Service) {
	go w.Lead(ctx)            // its error says that the context has ended
	w.Lead(ctx)               // want `the error of items.ServiceWithLock.Lead is dropped`
	_, _ = w.Close(ctx, "a")  // want `is dropped: it says whether "close" was held`
	w.BuyOne(ctx, 1, "a")     // want `the error of items.ServiceWithLock.BuyOne is dropped: it says whether "buy:<id>" was held`
	w.Buy(ctx, 1, []string{}) // want `is dropped`
	defer w.Fresh(ctx)        // want `is dropped by the defer statement`
	go w.BuyOne(ctx, 1, "a")  // want `is dropped by the go statement`
	go s.stale(ctx)           // has no lock
}
