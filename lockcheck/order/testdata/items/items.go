package items

import "context"

type Shop struct{ jobs *JobsWithLock }

type Jobs struct{ shop *ShopWithLock }

//lock:key="shop:<id>" merge=8
func (s *Shop) Buy(ctx context.Context, id int64, reqs []string) ([]string, error) {
	_, err := s.jobs.Close(ctx, "today") // want `"shop:<id>" is held while "shop:<id>" is taken with another value`
	return reqs, err
}

//lock:key="close" once="<day>"
func (j *Jobs) Close(ctx context.Context, day string) (string, error) {
	return j.shop.BuyOne(ctx, 1, day) // want `locks are taken in orders that contradict each other: "close" before "shop:<id>", "shop:<id>" before "close"`
}

type Feed struct{ prices *PricesWithLock }

type Prices struct{ old *OldWithLock }

type Old struct{ feed *FeedWithLock }

//lock:key="feed" leader
func (f *Feed) Run(ctx context.Context) error {
	return f.prices.Set(ctx) // want `locks are taken in orders that contradict each other: "feed" before "old", "old" before "feed"`
}

//lock:key="prices" wait=1s fallback=later
func (p *Prices) Set(ctx context.Context) error { return nil }

// A fallback runs without the lock of its method.
func (p *Prices) later(ctx context.Context) error { return p.old.Read(ctx) }

//lock:key="old"
func (o *Old) Read(ctx context.Context) error { return o.feed.Run(ctx) }
