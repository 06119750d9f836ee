package nested

import "context"

type Request struct{ From, To int64 }

type S struct{ self *SWithLock }

//lock:key="account:<from>"
func (s *S) Transfer(ctx context.Context, from, to int64) error {
	return s.self.Credit(ctx, to) // want `"account:<from>" is held while "account:<id>" is taken with another value: nested.S.Transfer holds "account:<from>" -> nested.SWithLock.Credit \(nested.go:11\), which locks "account:<id>". Two calls with the values swapped wait for each other; put both directives on one method`
}

//lock:key="account:<r.From>"
func (s *S) Move(ctx context.Context, r *Request) error {
	if err := s.deep(ctx, r.To); err != nil { // want `"account:<r.From>" is held while "account:<id>" is taken with another value`
		return err
	}
	return s.self.Again(ctx, r.From)
}

func (s *S) deep(ctx context.Context, id int64) error {
	return s.self.Credit(ctx, id)
}

//lock:key="account:<id>"
func (s *S) Credit(ctx context.Context, id int64) error { return nil }

//lock:key="account:<id>" reentrant
func (s *S) Again(ctx context.Context, id int64) error { return nil }

// Both at once, in one order.
//
//lock:key="account:<from>"
//lock:key="account:<to>"
func (s *S) Both(ctx context.Context, from, to int64) error { return nil }

//lock:key="account:<id>"
func (s *S) Close(ctx context.Context, id int64) error {
	same := id
	if err := s.self.Again(ctx, same); err != nil {
		return err
	}
	return s.self.Credit(ctx, same) // want `"account:<id>" is held already and nested.SWithLock.Credit is not reentrant: .*It fails with ErrDeadlock at once; add reentrant to its directive`
}

// What is not known is not reported.
//
//lock:key="account:<id>"
func (s *S) Unknown(ctx context.Context, id int64, next func() int64) error {
	return s.self.Credit(ctx, next())
}

//lock:key="all"
func (s *S) All(ctx context.Context) error { return s.self.AllAgain(ctx) } // want `"all" is held already`

//lock:key="all"
func (s *S) AllAgain(ctx context.Context) error { return nil }
