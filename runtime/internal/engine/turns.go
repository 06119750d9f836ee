package engine

import (
	"context"
	"sync"
)

// Turns lets one goroutine at a time in, for each key. The zero Turns is ready.
type Turns[K comparable] struct {
	OnWait func(ctx context.Context) // is called before Enter waits, if it is not nil

	mu   sync.Mutex // guards keys
	keys map[K]*turn
}

type turn struct {
	inside chan struct{} // full while somebody is in
	users  int           // in it, or waiting; the mutex of Turns guards it
}

// Enter waits until nobody is in for key, or ctx ends: then it returns the error of ctx, also
// if both come together. If nobody is in, the end of ctx does not count. Who is in must call leave once.
func (t *Turns[K]) Enter(ctx context.Context, key K) (leave func(), err error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[K]*turn{}
	}
	one := t.keys[key]
	if one == nil {
		one = &turn{inside: make(chan struct{}, 1)}
		t.keys[key] = one
	}
	one.users++
	t.mu.Unlock()
	leave = func() {
		<-one.inside
		t.forget(key, one)
	}
	select {
	case one.inside <- struct{}{}:
		return leave, nil
	default:
	}
	if t.OnWait != nil {
		t.OnWait(ctx)
	}
	select {
	case one.inside <- struct{}{}:
		if ctx.Err() == nil {
			return leave, nil
		}
		<-one.inside
	case <-ctx.Done():
	}
	t.forget(key, one)
	return nil, ctx.Err()
}

func (t *Turns[K]) forget(key K, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.keys, key)
	}
}
