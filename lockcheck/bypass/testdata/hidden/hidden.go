package hidden

import (
	"context"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
)

type Payer interface {
	Pay(ctx context.Context, id int64) error
}

type Namer interface{ Name() string }

type Service struct{}

//lock:key="order:<id>"
func (s *Service) Pay(ctx context.Context, id int64) error { return nil }

func (s *Service) Name() string { return "" }

func run[P Payer](ctx context.Context, p P) error         { return p.Pay(ctx, 1) }
func runAll[P Payer](ctx context.Context, all ...P) error { return nil }
func named[N Namer](n N) string                           { return n.Name() }
func same[T any](v T) T                                   { return v }

func generic(ctx context.Context, s *Service, locker *lock.Locker) error {
	if err := run(ctx, s); err != nil { // want `\*Service becomes Payer here, whose Pay then runs without the lock "order:<id>": wrap it by NewServiceWithLock first`
		return err
	}
	if err := run[*Service](ctx, s); err != nil { // want `becomes Payer here`
		return err
	}
	if err := runAll(ctx, s, s); err != nil { // want `becomes Payer here`
		return err
	}
	w := NewServiceWithLock(s, locker)
	_, _ = named(s), same(s) // neither calls a method that has a lock
	var p Payer = w
	if err := run(ctx, p); err != nil {
		return err
	}
	return run(ctx, w)
}

func call(ctx context.Context, v any) error {
	if p, ok := v.(Payer); ok {
		return p.Pay(ctx, 1)
	}
	return nil
}

func choose(ctx context.Context, v any) error {
	switch p := v.(type) {
	case Payer:
		return p.Pay(ctx, 1)
	case Namer:
		fmt.Println(p.Name())
	}
	return nil
}

func nameFirst(ctx context.Context, v any) error {
	switch p := v.(type) {
	case Namer:
		fmt.Println(p.Name())
	case Payer: // who has a name never comes here
		return p.Pay(ctx, 1)
	}
	return nil
}

func print(v any) { fmt.Println(v.(Namer).Name()) }

func anything(ctx context.Context, s *Service, w *ServiceWithLock, got any) error {
	var v any = s
	if err := v.(Payer).Pay(ctx, 1); err != nil { // want `\*Service becomes Payer here`
		return err
	}
	if err := call(ctx, s); err != nil { // want `becomes Payer here`
		return err
	}
	if err := choose(ctx, s); err != nil { // want `becomes Payer here`
		return err
	}
	if err := nameFirst(ctx, s); err != nil {
		return err
	}
	var wrapped any = w
	if err := wrapped.(Payer).Pay(ctx, 1); err != nil {
		return err
	}
	if err := call(ctx, w); err != nil {
		return err
	}
	fmt.Println(v.(Namer).Name(), s)
	print(s)
	var other any = s // not known: it may be the wrapper by then
	other = w
	if err := other.(Payer).Pay(ctx, 1); err != nil {
		return err
	}
	return got.(Payer).Pay(ctx, 1)
}
