// Package hooks has a list of an interface, to which what is called back is appended.
package hooks

import "context"

type Hook interface {
	Run(ctx context.Context) error
}

type A struct{ hooks []Hook }

type B struct{ a *AWithLock }

//lock:key="a"
func (a *A) Do(ctx context.Context) error {
	for _, h := range a.hooks {
		if err := h.Run(ctx); err != nil { // want `locks are taken in orders that contradict each other: "a" before "b", "b" before "a"`
			return err
		}
	}
	return nil
}

//lock:key="b"
func (b *B) Run(ctx context.Context) error { return nil }

//lock:key="b"
func (b *B) Other(ctx context.Context) error { return b.a.Do(ctx) }

func (a *A) Add(b *BWithLock) { a.hooks = append(a.hooks, b) }
