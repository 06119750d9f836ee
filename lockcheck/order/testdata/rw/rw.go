package rw

import "context"

type S struct{ self *SWithLock }

//lock:key="doc:<id>" read
func (s *S) Read(ctx context.Context, id int64) error {
	if err := s.self.ReadAgain(ctx, id); err != nil {
		return err
	}
	return s.self.Write(ctx, id) // want `"doc:<id>" is held for reading and asked for again for writing: .*Two that do so wait for each other; take it for writing at once`
}

//lock:key="doc:<id>" read
func (s *S) ReadAgain(ctx context.Context, id int64) error { return nil }

//lock:key="doc:<id>" write
func (s *S) Write(ctx context.Context, id int64) error { return nil }

// Readers block no readers.
//
//lock:key="a:<id>" read
func (s *S) A(ctx context.Context, id int64) error { return s.self.B(ctx, id) }

//lock:key="b:<id>" read
func (s *S) B(ctx context.Context, id int64) error { return s.self.A(ctx, id) }
