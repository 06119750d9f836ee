// Package decorator has implementations of an annotated interface that stand around
// another: what they hand on to is not the wrapper around themselves.
package decorator

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

type Storage interface {
	//lock:key="client:<id>"
	Update(ctx context.Context, id string) error
	//lock:key="client:<id>"
	Delete(ctx context.Context, id string) error
}

func Open(s Storage, l *lock.Locker) Storage {
	var out Storage = NewStorageWithLock(&traced{next: static{s}}, l)
	return out
}

type static struct{ Storage }

func (s static) Update(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	return s.Storage.Update(ctx, id)
}

type traced struct{ next Storage }

func (t *traced) Update(ctx context.Context, id string) error { return t.next.Update(ctx, id) }

// Delete asks for another method of the same value, which has the same lock.
func (t *traced) Delete(ctx context.Context, id string) error {
	if err := t.next.Update(ctx, id); err != nil {
		return err
	}
	return t.next.Delete(ctx, id)
}

// astray asks the wrapper itself.
type astray struct {
	Storage
	front *StorageWithLock
}

func (a *astray) Update(ctx context.Context, id string) error {
	return a.front.Delete(ctx, id) // want `"client:<id>" is held already and decorator.StorageWithLock.Delete is not reentrant`
}

func Astray(s Storage, l *lock.Locker) Storage {
	a := &astray{Storage: s}
	a.front = NewStorageWithLock(a, l)
	return a.front
}
