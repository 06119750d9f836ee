// Package locks shows what the Lockers of a process hold and wait for, on a page for the
// browser. As net/http/pprof it is for developers and operators: the page shows keys, which
// may say who your users are, so don't serve it where the public can reach it.
//
//	monitor := locks.New(nil)
//	locker := lock.New(backend, &lock.Options{Observer: monitor})
//	defer monitor.Watch(locker)()
//	http.Handle("/debug/locks/", monitor)
//
// A [Monitor] is an observer that counts, and an [http.Handler]. The page has all it needs in
// itself, works at any path, and is brought up to date each second while it is open. Without
// JavaScript it is a table as of the moment when it was loaded.
//
// # The page
//
//   - Patterns: locks that are held and calls that wait now, by method, pattern and backend;
//     calls that got a lock, were refused, and lost one, since the Monitor was made; the 50th
//     and 99th percentile of the wait and the 99th of the hold, over the last half minute to
//     minute, at most an eighth too high.
//   - Keys: those that most calls wait for first, then those held longest. Each leads to a
//     page of its own with its holders, what is left of their leases, and its queue.
//   - Locks inside of others: the orders in which patterns were nested, and those that
//     contradict each other, so that calls may come to wait for each other.
//   - Events: locks that were lost, releases that the engine did not confirm, outages,
//     orders that contradict each other with the stacks, calls that met a holder with another
//     number of permits, and Lockers that nobody closed.
//
// All lists are cut into pages, so that what the browser gets has a bound.
//
// # Profiles
//
// With [Options.ProfileFraction] there are two profiles, of how long calls waited for locks and
// held them, by caller and with the labels method, pattern and backend:
//
//	go tool pprof 'http://localhost:6060/debug/locks/?profile=wait'
//	go tool pprof -tagroot pattern 'http://localhost:6060/debug/locks/?profile=hold&seconds=30'
//
// The caller of a lock that was lost is not known: its hold has no stack. A wait counts once
// it has ended.
//
// # Limits
//
// What is held and waited for is that of this process. Who else holds a key is known to the
// engine alone.
package locks
