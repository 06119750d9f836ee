package engine

import (
	"context"
	"sync"
)

// KeyedMutex lets one goroutine at a time in for each key. The zero KeyedMutex is ready for use.
type KeyedMutex[K comparable] struct {
	OnWait func(ctx context.Context) // called before Enter waits, unless it is nil

	mu   sync.Mutex // guards keys
	keys map[K]*keyLock
}

type keyLock struct {
	held  chan struct{} // full while a goroutine is inside
	users int           // goroutines that are inside or wait; guarded by KeyedMutex.mu
}

// Enter waits until nobody is inside for key. If ctx ends before, it returns the error of ctx, even
// if the key becomes free at that moment. If nobody is inside, it ignores ctx. The caller must call
// leave once.
func (m *KeyedMutex[K]) Enter(ctx context.Context, key K) (leave func(), err error) {
	m.mu.Lock()
	if m.keys == nil {
		m.keys = map[K]*keyLock{}
	}
	lock := m.keys[key]
	if lock == nil {
		lock = &keyLock{held: make(chan struct{}, 1)}
		m.keys[key] = lock
	}
	lock.users++
	m.mu.Unlock()
	leave = func() {
		<-lock.held
		m.forget(key, lock)
	}
	select {
	case lock.held <- struct{}{}:
		return leave, nil
	default:
	}
	if m.OnWait != nil {
		m.OnWait(ctx)
	}
	select {
	case lock.held <- struct{}{}:
		if ctx.Err() == nil {
			return leave, nil
		}
		<-lock.held
	case <-ctx.Done():
	}
	m.forget(key, lock)
	return nil, ctx.Err()
}

func (m *KeyedMutex[K]) forget(key K, lock *keyLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if lock.users--; lock.users == 0 {
		delete(m.keys, key)
	}
}
