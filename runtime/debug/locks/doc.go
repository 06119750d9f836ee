// Package locks serves a web page that shows what the Lockers of a process hold and wait for.
// Like net/http/pprof it is for developers and operators. The page shows keys, which may
// identify users, so don't serve it to the public.
//
//	monitor := locks.New(nil)
//	locker := lock.New(backend, &lock.Options{Observer: monitor})
//	defer monitor.Watch(locker)()
//	http.Handle("/debug/locks/", monitor)
//
// A [Monitor] is an observer that counts events, and an [http.Handler]. The page loads nothing
// from elsewhere, works at any path, and is updated each second while it is open. Without
// JavaScript it shows the state when it was loaded.
//
// # The page
//
//   - Patterns: for each method, pattern and backend the locks that are held and the calls that
//     wait now; how many calls got a lock, were refused or lost their lock since the Monitor was
//     made; and the 50th and 99th percentile of the wait and the 99th of the hold. Percentiles
//     are of the last 30 to 60 seconds, and may be up to an eighth too high.
//   - Keys: first those with the most waiting calls, then those that have been held longest. Each
//     links to a page with its holders, what is left of their leases, and its queue.
//   - Locks inside of others: the orders in which patterns were nested, and the orders that
//     contradict each other, so that calls can deadlock.
//   - Events: locks that were lost, releases that the engine did not confirm, outages,
//     contradicting orders with their stacks, calls that met a holder with another number of
//     permits, and Lockers that nobody closed.
//
// All lists are split into pages, so that the answer to the browser has a bound.
//
// # Profiles
//
// With [Options.ProfileFraction] there are two profiles: how long calls waited for locks, and how
// long they held them. Their samples have the caller's stack and the labels method, pattern and
// backend:
//
//	go tool pprof 'http://localhost:6060/debug/locks/?profile=wait'
//	go tool pprof -tagroot pattern 'http://localhost:6060/debug/locks/?profile=hold&seconds=30'
//
// The hold of a lock that was lost has no stack, because its caller is not known. A wait counts
// when it has ended.
//
// # Limits
//
// The page shows the holds and waits of this process only. Only the engine knows which other
// processes hold a key.
package locks
