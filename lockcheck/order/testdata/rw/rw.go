package rw

import "context"

type S struct{ self *SWithLock }

//lock:key="doc:<id>" read
func (s *S) Read(ctx context.Context, id int64) error {
	if err := s.self.ReadAgain(ctx, id); err != nil { // want `"doc:<id>" is held already and rw.SWithLock.ReadAgain is not reentrant: .*`
		return err
	}
	return s.self.Write(ctx, id) // want `"doc:<id>" is held for reading and asked for again for writing: .*It fails with ErrDeadlock at once; take it for writing first`
}

//lock:key="doc:<id>" read
func (s *S) ReadAgain(ctx context.Context, id int64) error { return nil }

//lock:key="doc:<id>" write
func (s *S) Write(ctx context.Context, id int64) error { return nil }

// Whoever writes may read what it holds whole.
//
//lock:key="doc:<id>" write
func (s *S) WriteThenRead(ctx context.Context, id int64) error { return s.self.Read(ctx, id) }

// Readers block no readers.
//
//lock:key="a:<id>" read
func (s *S) A(ctx context.Context, id int64) error { return s.self.B(ctx, id) }

//lock:key="b:<id>" read
func (s *S) B(ctx context.Context, id int64) error { return s.self.A(ctx, id) }
