package values

import (
	"context"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
)

type Payer interface {
	Pay(ctx context.Context, id int64) error
}

type Namer interface{ Name() string }

type Service struct{ self Payer }

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

func (s *Service) Name() string { return "" }

func take(p Payer, more ...Payer) {}
func name(n Namer)                {}

var _ Payer = (*Service)(nil) // says that it implements it, and makes no value

var global Payer = &Service{} // want `\*Service becomes Payer here, whose Pay then runs without the lock "order:<id>": wrap it by NewServiceWithLock first`

func New(locker *lock.Locker) *ServiceWithLock {
	s := &Service{}
	w := NewServiceWithLock(s, locker)
	s.self = w
	return w
}

func unguarded() (Payer, error) {
	s := &Service{}
	s.self = s                         // want `\*Service becomes Payer here`
	take(s)                            // want `becomes Payer here`
	take(nil, nil, s)                  // want `becomes Payer here`
	name(s)                            // no method of it has a lock
	fmt.Println(s)                     // nor here
	list := []Payer{s}                 // want `becomes Payer here`
	byName := map[string]Payer{"a": s} // want `becomes Payer here`
	other := Service{self: s}          // want `becomes Payer here`
	_ = Payer(s)                       // want `becomes Payer here`
	ch := make(chan Payer, 1)
	ch <- s                     // want `becomes Payer here`
	list = append(list, nil, s) // want `becomes Payer here`
	list = append(list, []Payer{}...)
	plain := append([]*Service{}, s)    // no interface
	byPayer := map[Payer]string{s: "a"} // want `becomes Payer here`
	delete(byPayer, Payer(nil))
	_, _, _, _ = list, byName, other, plain
	return s, nil // want `becomes Payer here`
}

// Store is annotated itself: what is behind it may have the lock.
type Store interface {
	Save(ctx context.Context, id int64) error //lock:key="store:<id>"
}

type memory struct{}

func (memory) Save(ctx context.Context, id int64) error { return nil }

func stores(ctx context.Context, locker *lock.Locker) error {
	var s Store = NewStoreWithLock(memory{}, locker)
	return s.Save(ctx, 1)
}
