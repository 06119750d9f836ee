// Package lock runs methods under distributed locks: typed, reentrant, renewed
// by a watchdog, released only by their owner, fenced, and given up in time
// when they are lost.
//
// Code that lockgen generates calls this package; by hand use [Locker.Do]:
//
//	locker := lock.New(redislock.New(client), nil)
//	err := locker.Do(ctx, &lock.Policy{TTL: time.Minute}, "report:daily", func(ctx context.Context) error {
//		token, _ := lock.Token(ctx)
//		return write(ctx, token)
//	})
//
// # Ownership
//
// Ownership travels in the context, downward only. The context that a locked
// method receives owns the lock; the caller's own does not. The owned context
// ends, with cause [ErrLost], before the lease can end at the engine. Once the
// method has returned, its context owns nothing, and the outermost one's is
// cancelled: whatever lives on it (sql.Rows, an iterator, a goroutine) ends
// with the method.
//
// # Errors
//
// Every error of an acquire or a release is a [*Error] around one of the
// sentinels of this package, and the caller's own context error stays visible
// beside it. Beside [ErrLost] alone the method may have run.
package lock
