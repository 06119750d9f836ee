// Package bypass calls annotated methods around their locks.
package bypass

import (
	"context"
	"fmt"
	"sync"

	lock "github.com/lockgen/lockgen/runtime"
)

type Payer interface {
	Pay(ctx context.Context, id int64) error
}

type Namer interface{ Name() string }

type PayNamer interface {
	Payer
	Namer
}

type Service struct {
	self  *ServiceWithLock
	payer Payer
	name  string
}

//lock:key="order:<id>" reentrant
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

//lock:key="order:<id>" reentrant
func (s *Service) Refund(ctx context.Context, id int64) error {
	if err := s.Pay(ctx, id); err != nil { // mistake bypass: Service.Pay is called without its lock "order:<id>"
		return err
	}
	return s.self.Pay(ctx, id) // right: the field holds the wrapper
}

func (s *Service) Name() string { return s.name }

func (s *Service) PayAll(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		if err := s.Pay(ctx, id); err != nil { // mistake bypass: is called without its lock
			return err
		}
	}
	return nil
}

func (s *Service) payLater(ctx context.Context) {
	go s.Pay(ctx, 1)                // mistake bypass: is called without its lock
	defer s.Pay(ctx, 1)             // mistake bypass: is called without its lock
	go func() { s.self.Name() }()   // right: has no lock
	defer func() { _ = s.Name() }() // right: has no lock
}

// Reserve is annotated as a function.
//
//lock:key="stock:<sku>"
func Reserve(ctx context.Context, sku string) error { return nil }

func functions(ctx context.Context, locker *lock.Locker) error {
	reserve := Reserve                        // mistake bypass: Reserve is used without its lock
	with := ReserveWithLock                   // right: takes the lock
	each := map[string]func(){"a": func() {}} // right: a map of functions that have no lock
	if err := Reserve(ctx, "a"); err != nil { // mistake bypass: Reserve is called without its lock "stock:<sku>"
		return err
	}
	if err := ReserveWithLock(ctx, locker, "a"); err != nil { // right: takes the lock
		return err
	}
	_, _, _ = reserve, with, each
	return nil
}

type Outer struct{ *Service }

type Deep struct{ Outer }

type Guarded struct{ *ServiceWithLock }

type Shadow struct{ *Service }

func (s Shadow) Pay(ctx context.Context, id int64) error { return s.self.Pay(ctx, id) }

func embedded(ctx context.Context, o Outer, d Deep, g Guarded, s Shadow) {
	_ = o.Pay(ctx, 1)         // mistake bypass: is called without its lock
	_ = d.Pay(ctx, 1)         // mistake bypass: is called without its lock
	_ = o.Service.Pay(ctx, 1) // mistake bypass: is called without its lock
	var p Payer = o           // mistake bypass: becomes Payer here
	_ = p
	report(g.Pay(ctx, 1)) // right: the wrapper is embedded
	report(s.Pay(ctx, 1)) // right: its own method goes through the wrapper
	p = g                 // right: the wrapper is embedded
	p = s                 // right: its own method goes through the wrapper
	_ = d.Name()          // right: has no lock
}

func report(err error) {}

func values(ctx context.Context, s *Service, w *ServiceWithLock) {
	pay := s.Pay           // mistake bypass: is used without its lock
	expr := (*Service).Pay // mistake bypass: is used without its lock
	name := s.Name         // right: has no lock
	locked := w.Pay        // right: takes the lock
	sync.OnceFunc(func() { // right: calls what has no lock
		_ = s.Name()
	})()
	report(func() error { return s.Pay(ctx, 2) }()) // mistake bypass: is called without its lock
	report(func() error { return w.Pay(ctx, 2) }()) // right: takes the lock
	_, _, _, _ = pay, expr, name, locked
}

func inner(ctx context.Context, w *ServiceWithLock) {
	report(w.serviceInner.Pay(ctx, 1)) // mistake bypass: is called without its lock
	fmt.Println(w.serviceInner.name)   // right: a field
}

func pass(p Payer, more ...Payer) {}
func named(n Namer)               {}
func logged(v any)                {}

func becomes(s *Service, w *ServiceWithLock) (Payer, error) {
	s.payer = s                   // mistake bypass: becomes Payer here
	s.payer = w                   // right: the wrapper
	pass(s)                       // mistake bypass: becomes Payer here
	pass(w)                       // right: the wrapper
	pass(nil, s)                  // mistake bypass: becomes Payer here
	pass(nil, w, w)               // right: the wrapper
	named(s)                      // right: no method of Namer has a lock
	logged(s)                     // right: nothing is called
	all := []Payer{s}             // mistake bypass: becomes Payer here
	guarded := []Payer{w}         // right: the wrapper
	by := map[int]Payer{1: s}     // mistake bypass: becomes Payer here
	byName := map[int]Namer{1: s} // right: no method of Namer has a lock
	other := Service{payer: s}    // mistake bypass: becomes Payer here
	plain := Service{name: "b"}   // right: is no interface
	both := PayNamer(s)           // mistake bypass: becomes PayNamer here
	ch := make(chan Payer, 2)
	ch <- s // mistake bypass: becomes Payer here
	ch <- w // right: the wrapper
	_, _, _, _, _, _, _ = all, guarded, by, byName, other, plain, both
	return s, nil // mistake bypass: becomes Payer here
}

var _ Payer = (*Service)(nil) // right: says that it implements it

var shared Payer = &Service{} // mistake bypass: becomes Payer here

func open() (*Service, error)           { return &Service{}, nil }
func wrapped() (*ServiceWithLock, bool) { return nil, true }

func two(p Payer, err error)      {}
func twoWrapped(p Payer, ok bool) {}
func twoNamed(n Namer, err error) {}

func several(s *Service, w *ServiceWithLock) (p Payer, err error) {
	p, err = open()       // mistake bypass: becomes Payer here
	two(open())           // mistake bypass: becomes Payer here
	defer two(open())     // mistake bypass: becomes Payer here
	var q, _ = open()     // right: q is a *Service
	p, ok := wrapped()    // right: the wrapper
	twoWrapped(wrapped()) // right: the wrapper
	twoNamed(open())      // right: no method of Namer has a lock
	_, err = open()       // right: is dropped
	byID := map[int]*Service{}
	p, ok = byID[1] // mistake bypass: becomes Payer here
	locked := map[int]*ServiceWithLock{}
	p, ok = locked[1] // right: the wrapper
	ch := make(chan *Service, 1)
	p, ok = <-ch           // mistake bypass: becomes Payer here
	p, ok = any(w).(Payer) // right: may be the wrapper
	_, _ = q, ok
	return open() // mistake bypass: becomes Payer here
}

func ranges(all []*Service, locked []*ServiceWithLock, ch chan *Service, seq func(func(*Service, error) bool)) (p Payer) {
	for _, p = range all { // mistake bypass: becomes Payer here
	}
	for _, p = range locked { // right: the wrapper
	}
	for _, s := range all { // right: s is a *Service
		_ = s
	}
	for p = range ch { // mistake bypass: becomes Payer here
	}
	for p = range seq { // mistake bypass: becomes Payer here
	}
	var i int
	for i = range all { // right: the index
	}
	_ = i
	return p
}

func pay[P Payer](ctx context.Context, p P) error         { return p.Pay(ctx, 1) }
func payEach[P Payer](ctx context.Context, all []P) error { return nil }
func name[N Namer](n N) string                            { return n.Name() }
func same[T any](v T) T                                   { return v }

func payNew[T any, P interface {
	*T
	Payer
}](ctx context.Context) error {
	return P(new(T)).Pay(ctx, 1)
}
func payOf[T any, P interface {
	*T
	Payer
}](ctx context.Context, v *T) error {
	return P(v).Pay(ctx, 1)
}
func make2[T any, P interface {
	*T
	Payer
}]() P {
	return new(T)
}
func nameNew[T any, P interface {
	*T
	Namer
}]() string {
	return P(new(T)).Name()
}
func unique[P interface {
	comparable
	Payer
}](by func(P)) {
}

type pool[P Payer] struct{ one P }

func (p pool[P]) run(ctx context.Context) error { return p.one.Pay(ctx, 1) }

func generic(ctx context.Context, s *Service, w *ServiceWithLock) {
	report(pay(ctx, s))                         // mistake bypass: becomes Payer here
	report(pay(ctx, w))                         // right: the wrapper
	report(pay[*Service](ctx, s))               // mistake bypass: becomes Payer here
	report(pay[Payer](ctx, s.payer))            // right: may be the wrapper
	report(payEach(ctx, []*Service{s}))         // mistake bypass: becomes Payer here
	report(payEach(ctx, []*ServiceWithLock{w})) // right: the wrapper
	report(payNew[Service](ctx))                // mistake bypass: *Service becomes interface{*T; Payer} here, whose Pay then runs without the lock "order:<id>": have payNew take one
	report(payOf(ctx, s))                       // mistake bypass: have payOf take one that NewServiceWithLock made
	_ = nameNew[Service]()                      // right: no method of Namer has a lock
	_ = make2[Service]()                        // right: what is made may be wrapped yet
	unique[*Service](nil)                       // right: has no value of it
	_ = pool[*Service]{one: s}                  // unseen bypass: what a generic type does with its field is not followed
	_ = pool[*ServiceWithLock]{one: w}          // right: the wrapper
	_ = name(s)                                 // right: no method of Namer has a lock
	_ = same(s)                                 // right: nothing is called
}

func callAny(ctx context.Context, v any) error {
	if p, ok := v.(Payer); ok {
		return p.Pay(ctx, 1)
	}
	return nil
}

func switchAny(ctx context.Context, v any) error {
	switch p := v.(type) {
	case Payer:
		return p.Pay(ctx, 1)
	}
	return nil
}

func nameAny(v any) string { return v.(Namer).Name() }

func anything(ctx context.Context, s *Service, w *ServiceWithLock, got any) {
	report(callAny(ctx, s))   // mistake bypass: becomes Payer here
	report(callAny(ctx, w))   // right: the wrapper
	report(callAny(ctx, got)) // right: may be the wrapper
	report(switchAny(ctx, s)) // mistake bypass: becomes Payer here
	report(switchAny(ctx, w)) // right: the wrapper
	_ = nameAny(s)            // right: no method of Namer has a lock
	var v any = s
	report(v.(Payer).Pay(ctx, 1))    // mistake bypass: becomes Payer here
	report(v.(*Service).Pay(ctx, 1)) // mistake bypass: is called without its lock
	var guarded any = w
	report(guarded.(Payer).Pay(ctx, 1)) // right: the wrapper
	values := []any{s}
	report(values[0].(Payer).Pay(ctx, 1)) // unseen bypass: what an element of a slice holds is not followed
}

func hidden(ctx context.Context, s *Service) {
	report(s.Pay(ctx, 1)) //lockcheck:ignore bypass right: the migration runs alone
}
