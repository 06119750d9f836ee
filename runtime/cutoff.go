package lock

import (
	"context"
	"reflect"
	"time"
)

// endsWith reports whether ctx, which inherits its values from outer, is cancelled
// when outer is. It is not if context.WithoutCancel, or another context that never
// ends, lies between them. Such a context can have a deadline put on top, and then
// its Done tells nothing.
func endsWith(ctx context.Context, outer *ownedContext) bool {
	if ctx == context.Context(outer) {
		return true
	}
	done := ctx.Done()
	if done == nil {
		return false
	}
	if done == outer.Done() || cancelKey == nil {
		return true
	}
	// Package context finds the parent that cancels a context by Value with a key of
	// its own, for which WithoutCancel returns nil. Follow these links from ctx to
	// the one that cancels outer.
	goal := outer.Value(cancelKey)
	for c := ctx.Value(cancelKey); c != nil; {
		if c == goal {
			return true
		}
		parent, ok := parentOf(c)
		if !ok {
			return true // an unknown type: assume that it ends with outer
		}
		if parent.Done() == nil { // somebody's own context, which has outer's values and never ends
			return false
		}
		c = parent.Value(cancelKey)
	}
	return goal == nil
}

// parentOf returns the exported field Context of c, a pointer to the struct
// that package context makes.
func parentOf(c any) (context.Context, bool) {
	v := reflect.ValueOf(c)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, false
	}
	field := v.Elem().FieldByName("Context")
	if !field.IsValid() || !field.CanInterface() {
		return nil, false
	}
	parent, ok := field.Interface().(context.Context)
	return parent, ok
}

// cancelKey is that key of package context, or nil if it has none.
var cancelKey = func() any {
	l := &keyListener{done: make(chan struct{})}
	close(l.done)
	_, cancel := context.WithCancel(l)
	cancel()
	return l.key
}()

// keyListener is a context that remembers which key it was asked for.
type keyListener struct {
	done chan struct{}
	key  any
}

func (l *keyListener) Deadline() (time.Time, bool) { return time.Time{}, false }
func (l *keyListener) Done() <-chan struct{}       { return l.done }
func (l *keyListener) Err() error                  { return context.Canceled }
func (l *keyListener) Value(key any) any           { l.key = key; return nil }
