// Package asynqlock runs the handlers of asynq tasks (github.com/hibiken/asynq) under locks of
// package lock. Tasks with the same key run one at a time over all workers.
//
// Pass [Middleware] to ServeMux.Use. A worker that does not get the lock gives the task back
// to asynq, which retries it later. Set IsFailure of asynq.Config to [IsFailure] as well:
// such a task has not failed, and should not use up its retries.
//
//	server := asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure})
//	mux.Use(asynqlock.Middleware(locks, &lock.Policy{Try: true}, key))
//
// A worker that waits for a lock does nothing else, so set Try or a short Wait in the Policy.
// If a task may not be retried (MaxRetry(0)) and the worker gives it back, asynq archives it,
// whatever IsFailure reports.
//
// # Once
//
// asynq delivers a task at least once. It delivers it again if a worker dies, or loses its
// lease of the task, after the handler was done. With Once in the Policy the tick is the
// task's ID, which stays the same over retries. A task that was completed under the key is
// not run again, and counts as processed. The engine remembers the last 256 completed tasks
// of a key, or as many as have IDs of 10,000 bytes together. It forgets them 40 days after the
// last of them; etcd, Consul and ZooKeeper never forget them. So don't use a key for each
// account or order there.
//
// # A handler that runs longer than its task
//
// When a task's deadline or the worker's lease of the task is over, asynq retries the task
// even if the handler has not returned. The lock is held until the handler returns. The
// handler's context is that of the lock: it ends when the lock is lost, and has the fencing
// token.
package asynqlock
