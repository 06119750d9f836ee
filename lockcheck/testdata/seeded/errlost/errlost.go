// Package errlost loses the errors that tell of locks.
package errlost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"

	lock "github.com/lockgen/lockgen/runtime"
)

type Service struct{}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="count:<id>"
func (s *Service) Count(ctx context.Context, id int64) (int, error) { return 0, nil }

//lock:key="sweep" leader
func (s *Service) Sweep(ctx context.Context) error { return nil }

func (s *Service) Free(ctx context.Context) error { return nil }

func ship(id int64) error { return nil }

func dropped(ctx context.Context, w *ServiceWithLock, l *lock.Locker) {
	w.Pay(ctx, 1)              // mistake errlost: the error of errlost.ServiceWithLock.Pay is dropped
	_ = w.Pay(ctx, 1)          // mistake errlost: is dropped
	_, _ = w.Count(ctx, 1)     // mistake errlost: is dropped
	n, _ := w.Count(ctx, 1)    // mistake errlost: is dropped
	go w.Pay(ctx, 1)           // mistake errlost: is dropped by the go statement
	defer w.Pay(ctx, 1)        // mistake errlost: is dropped by the defer statement
	lock.Check(ctx)            // mistake errlost: the error of lock.Check is dropped
	_ = lock.Check(ctx)        // mistake errlost: is dropped
	l.Do(ctx, nil, "k", work)  // mistake errlost: the error of Do is dropped
	var m, _ = w.Count(ctx, 2) // mistake errlost: is dropped
	go w.Sweep(ctx)            // right: a leader's error says that the context has ended
	w.Free(ctx)                // right: has no lock
	_ = w.Free(ctx)            // right: has no lock
	ship(1)                    // right: has no lock
	go ship(1)                 // right: has no lock
	defer w.Free(ctx)          // right: has no lock
	log.Print(w.Pay(ctx, 1))   // right: is logged
	_, _ = n, m
}

func work(ctx context.Context) error { return nil }

type booker interface {
	Pay(ctx context.Context, id int64) error
}

func behind(ctx context.Context, b booker) error {
	b.Pay(ctx, 1)        // mistake errlost: is dropped
	return b.Pay(ctx, 1) // right: is returned
}

func asBooker(w *ServiceWithLock) booker { return w } // right: the wrapper

func overwritten(ctx context.Context, w *ServiceWithLock) error {
	err := w.Pay(ctx, 1) // mistake errlost: err is assigned again
	err = ship(1)
	if err != nil {
		return err
	}
	n, err := w.Count(ctx, 1) // mistake errlost: err is assigned again
	m, err := w.Count(ctx, 2) // right: is returned
	fmt.Println(n, m)
	return err
}

func inCondition(ctx context.Context, w *ServiceWithLock) error {
	err := w.Pay(ctx, 1)                      // mistake errlost: err is assigned again
	if _, err = w.Count(ctx, 1); err != nil { // right: is looked at
		return err
	}
	err = w.Pay(ctx, 2)                                          // right: the condition looks at it
	if n, again := w.Count(ctx, 2); again != nil && err == nil { // right: is looked at
		fmt.Println(n)
	}
	return nil
}

func named(ctx context.Context, w *ServiceWithLock) (err error) {
	err = w.Pay(ctx, 1) // unseen errlost: a named result is read by each return
	err = w.Pay(ctx, 2) // right: a bare return returns it
	return
}

func blank(ctx context.Context, w *ServiceWithLock) error {
	err := w.Pay(ctx, 1) // mistake errlost: no one looks at err
	_ = err
	return nil
}

func forgotten(ctx context.Context, w *ServiceWithLock) error {
	err := ship(1) // right: is looked at
	if err != nil {
		return err
	}
	err = w.Pay(ctx, 1) // mistake errlost: no one looks at err
	return nil
}

func rounds(ctx context.Context, w *ServiceWithLock, ids []int64) (last error) {
	for _, id := range ids {
		if last != nil {
			break
		}
		last = w.Pay(ctx, id) // right: the next round looks at it
	}
	for _, id := range ids {
		if err := w.Pay(ctx, id); err != nil { // right: is looked at
			last = errors.Join(last, err)
		}
	}
	var err error
	defer func() { log.Print(err) }()
	err = w.Pay(ctx, 1) // right: a closure reads it
	errs := make(chan error, 1)
	go func() { errs <- w.Pay(ctx, 2) }()           // right: is sent
	return errors.Join(last, w.Pay(ctx, 3), <-errs) // right: is joined
}

func compared(err error) error {
	if err == lock.ErrLost { // mistake errlost: is always wrapped, so that == never finds it
		return nil
	}
	if lock.ErrNotAcquired != err { // mistake errlost: so that != never finds it
		return nil
	}
	if err == io.EOF { // right: no error of ours
		return nil
	}
	switch err {
	case io.EOF: // right: no error of ours
	case lock.ErrClosed: // mistake errlost: is always wrapped
	}
	switch {
	case err == lock.ErrInvalid: // mistake errlost: is always wrapped
	case errors.Is(err, lock.ErrInvalid): // right: finds what is wrapped
	}
	lost := err == lock.ErrLost || err == nil           // mistake errlost: is always wrapped
	found := errors.Is(err, lock.ErrLost) || err == nil // right: finds what is wrapped
	_, _ = lost, found
	return err
}

func swapped(err error) bool {
	if errors.Is(lock.ErrNotAcquired, err) { // mistake errlost: the arguments are swapped
		return true
	}
	same := errors.Is(lock.ErrLost, lock.ErrClosed) // right: two constants, in a test of them
	return same || !errors.Is(lock.ErrLost, err)    // mistake errlost: the arguments are swapped
}

func asserted(err error, v any) {
	if e, ok := err.(*lock.Error); ok { // mistake errlost: a type assertion does not find it
		log.Print(e.Key)
	}
	switch e := err.(type) {
	case *lock.Error: // mistake errlost: a type switch does not find it
		log.Print(e.Key)
	case *fs.PathError: // right: no error of ours
		log.Print(e.Path)
	}
	if e, ok := err.(*lock.PanicError); ok { // mistake errlost: a type assertion does not find it
		log.Print(e)
	}
	if e, ok := err.(*fs.PathError); ok { // right: no error of ours
		log.Print(e.Path)
	}
	if e, ok := v.(*lock.Error); ok { // right: any value, no error that is wrapped
		log.Print(e.Key)
	}
	var e *lock.Error
	if errors.As(err, &e) { // right: finds what is wrapped
		log.Print(e.Key)
	}
	text := err.Error() == lock.ErrLost.Error() // unseen errlost: comparing texts is a matter of other linters
	_ = text
}

func byHand(ctx context.Context, l *lock.Locker) (err error) {
	_, held, err := l.Acquire(ctx, nil, "a")
	if err != nil {
		return err
	}
	defer held.Release(&err) // right: the loss is returned
	_, other, err := l.Acquire(ctx, nil, "b")
	if err != nil {
		return err
	}
	defer other.Release(nil) // mistake errlost: Release(nil) drops the loss
	return nil
}

func nowhere(ctx context.Context, l *lock.Locker) {
	_, held, err := l.Acquire(ctx, nil, "a")
	if err != nil {
		return
	}
	defer held.Release(nil) // right: there is no one to tell
}

func other(ctx context.Context, l *lock.Locker) error {
	var lost error
	_, held, err := l.Acquire(ctx, nil, "a")
	if err != nil {
		return err
	}
	defer held.Release(&lost) // unseen errlost: that lost is read by no one would need the flow of a pointer
	return nil
}

func meant(ctx context.Context, w *ServiceWithLock) {
	_ = w.Pay(ctx, 1) //lockcheck:ignore errlost right: a hint that may be lost
}
