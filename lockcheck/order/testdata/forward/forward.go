package forward

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

var locker *lock.Locker

// The parameter hides the function from its wrapper, which calls it by way of another.
//
//lock:key="a:<id>"
func First(ctx context.Context, First, id int64) error {
	return SecondWithLock(ctx, locker, First, id) // want `locks are taken in orders that contradict each other: "a:<id>" before "b:<id>", "b:<id>" before "a:<id>"`
}

//lock:key="b:<id>"
func Second(ctx context.Context, Second, id int64) error {
	return FirstWithLock(ctx, locker, Second, id)
}
