// Package twice has one key at two backends, each with a function that makes it.
package twice

import (
	"context"

	lock "github.com/lockgen/lockgen/runtime"
)

//lock:key="moved:<id>" backend=west
//lock:key="moved:<id>" backend=etcd
func Move(ctx context.Context, id int64) error { return nil }

//lock:key="other" backend=etcd
func Other(ctx context.Context, l *lock.Locker, id int64) error { return EtcdWithLock(ctx, l, id) }

//lock:key="moved:<id>" backend=etcd
func Etcd(ctx context.Context, id int64) error { return nil }

var atEtcd = lock.Policy{Backend: "etcd"}

func ByHand(ctx context.Context, l *lock.Locker, id int64) error {
	return l.Do(ctx, &atEtcd, MoveKey2(id), func(ctx context.Context) error {
		return OtherWithLock(ctx, l, l, id) // want `locks are taken in orders that contradict each other: "moved:<id>" before "other", "other" before "moved:<id>"`
	})
}
