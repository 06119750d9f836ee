package testserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Example returns the address of a server for an Example function, which has no [testing.TB].
// shared is [Redis], [Etcd], [ZooKeeper] or a similar function. The caller must call stop at the
// end. An Example can't be skipped. If there is no server, it prints err, which says how to
// install one, and so it fails.
func Example(shared func(testing.TB) string) (addr string, stop func(), err error) {
	t := &exampleTB{}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exampleFailed:
			err = r.error
		default:
			panic(r)
		}
	}()
	return shared(t), t.end, nil
}

// exampleTB has the methods of testing.TB that this package calls.
type exampleTB struct {
	testing.TB // nil: nothing else is called
	cleanups   []func()
}

// exampleFailed is the value with which Fatalf and Skipf panic.
type exampleFailed struct{ error }

func (t *exampleTB) Helper()                   {}
func (t *exampleTB) Name() string              { return "Example" }
func (t *exampleTB) Context() context.Context  { return context.Background() }
func (t *exampleTB) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Fatalf(s string, a ...any) { panic(exampleFailed{fmt.Errorf(s, a...)}) }
func (t *exampleTB) Skipf(s string, a ...any)  { panic(exampleFailed{fmt.Errorf(s, a...)}) }
func (t *exampleTB) Skip(a ...any)             { panic(exampleFailed{errors.New(fmt.Sprint(a...))}) }
func (t *exampleTB) Fatal(a ...any)            { panic(exampleFailed{errors.New(fmt.Sprint(a...))}) }

func (t *exampleTB) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}
