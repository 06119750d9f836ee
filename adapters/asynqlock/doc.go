// Package asynqlock has the locks of package lock process tasks of asynq
// (github.com/hibiken/asynq) that share something one at a time, over all workers.
//
// [Middleware] is for ServeMux.Use. A worker that does not get the lock gives the task back
// to asynq, which retries it later. Give asynq.Config [IsFailure] as well: such a task has
// not failed, and should not use up its retries.
//
//	server := asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure})
//	mux.Use(asynqlock.Middleware(locks, &lock.Policy{Try: true}, key))
//
// A worker that waits for a lock does nothing else: have Try or a short Wait in the Policy.
// asynq archives a task that it gets back and that may not be retried (MaxRetry(0)),
// whatever IsFailure says.
//
// # Once
//
// asynq delivers a task at least once: again, if a worker has died or lost its lease after
// the handler was done. With Once in the Policy the tick is the task's ID, which retries
// keep, and a task that was completed under the key is left alone and counts as processed.
// The engine remembers the 256 tasks of a key that were completed last, or as many as have
// IDs of 10,000 bytes together, for 40 days after the last of them, and on etcd, Consul and
// ZooKeeper for good: have no key there for each account or order.
//
// # A handler that goes on
//
// When a task's deadline is over, or the worker's lease of it, asynq retries the task even
// if the handler has not returned. The lock is held until it has. The handler's context is
// the lock's: it ends when the lock is lost, and has the fencing token.
package asynqlock
