// Package both has an interface that gets a method in two ways, of which the second has a
// directive.
package both

import "context"

type Closer interface {
	Close(ctx context.Context, n int) error
}

type Account interface {
	//lock:key="account:<id>"
	Close(ctx context.Context, id int) error
}

type Bank interface {
	Closer
	Account
	//lock:key="open"
	Open(ctx context.Context) error
}

type Service struct{ Bank }

//lock:key="service"
func (s *Service) Do(ctx context.Context) error { return nil }

type A struct {
	bank    *BankWithLock
	service *ServiceWithLock
}

//lock:key="a"
func (a *A) One(ctx context.Context) error {
	return a.bank.Close(ctx, 1) // want `locks are taken in orders that contradict each other: "a" before "account:<id>", "account:<id>" before "a"`
}

//lock:key="b"
func (a *A) Two(ctx context.Context) error {
	return a.service.Close(ctx, 1)
}

type B struct{ a *AWithLock }

//lock:key="account:<id>"
func (b *B) One(ctx context.Context, id int) error {
	return b.a.One(ctx) // want `"account:<id>" is held while "account:<id>" is taken with another value`
}

//lock:key="account:<id>"
func (b *B) Two(ctx context.Context, id int) error {
	return b.a.Two(ctx) // want `"account:<id>" is held while` `locks are taken in orders that contradict each other: "account:<id>" before "b", "b" before "account:<id>"`
}
