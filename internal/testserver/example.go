package testserver

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Example gives an Example function, which has no [testing.TB], the address of a
// server: shared is [Redis], [Etcd], [ZooKeeper] or another of that form. The
// caller calls stop when it is done. An Example can't be skipped: where there is no
// such server it prints err, which says how to get one, and fails by that.
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

// exampleTB is what the functions of this package call of a testing.TB.
type exampleTB struct {
	testing.TB // nil: nothing else is called
	cleanups   []func()
}

// exampleFailed is the panic by which Fatalf and Skipf leave.
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
