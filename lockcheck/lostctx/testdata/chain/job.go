package chain

import "context"

// A job keeps the context of the method that makes it.
type job struct {
	ctx, began context.Context
	s          *Service
	id         int64
}

//lock:key="order:<id>" reentrant
func (s *Service) Job(ctx context.Context, id int64) error {
	return s.job(ctx, id).run()
}

func (s *Service) job(ctx context.Context, id int64) *job {
	return &job{ctx: ctx, began: context.Background(), s: s, id: id}
}

func (j *job) run() error {
	if j.id < 0 {
		return j.s.self.Book(j.began, j.id) // want `the field j.began does not own`
	}
	return j.s.self.Book(j.ctx, j.id)
}

// A Task may have got its context from another package, under the lock.
type Task struct {
	Ctx context.Context
	s   *Service
}

//lock:key="order:<id>" reentrant
func (s *Service) Task(ctx context.Context, id int64, t *Task) error { return t.run(id) }

func (t *Task) run(id int64) error { return t.s.self.Book(t.Ctx, id) }
