// Package cronlock has the locks of package lock run jobs of cron
// (github.com/robfig/cron/v3) on one process at a time, or once for each planned tick over
// all processes.
//
// [Exclusive] is a cron.JobWrapper, for jobs that know nothing of it. [Job] is a cron.Job
// from a function that gets the lock's context, and so its fencing token and the end when
// the lock is lost. [AddOnce] adds such a function to a Cron, to be run once a tick.
//
// # The planned tick
//
// cron tells a job neither when it was planned nor which entry it is. AddOnce therefore
// asks the Cron for its own entry as the run begins: the entry's Prev is the tick that
// the schedule had planned for this run, not the time at which the run began. A schedule
// names instants of the clock, such as 02:00, so all processes have the same ticks, however
// far apart their clocks are: a clock that is behind only makes its process come later,
// find the tick completed and leave it. So does a clock that is set back and comes to a
// tick again. Three things follow:
//
//   - "@every 5m" counts from when a process started, so its ticks are nobody else's.
//     AddOnce refuses it; "*/5 * * * *" is what to write.
//   - A schedule without a zone means the zone of its Cron. Give all processes the same one,
//     by cron.WithLocation or by "CRON_TZ=UTC 0 2 * * *".
//   - A wrapper in the Cron's own chain that holds a run back until the next tick is due,
//     such as cron.DelayIfStillRunning, makes it a run of that tick. With AddOnce it is not
//     needed: the lock holds runs back, and each keeps its tick.
//
// The engine remembers the last 256 ticks of a key. Two clocks may be so many ticks apart:
// for a tick a second that is four minutes.
//
// # What a run that fails leaves
//
// A tick is completed when the function has returned nil and the lock was still held. After
// an error, a panic or the end of the process, another process that waits for the lock, or
// whose clock comes to the tick later, runs it. Nobody does if none is left, and no process
// tries twice: a job that must not miss a tick looks at its own data for what is left to do.
//
// # The end
//
// Stop the Cron, wait for the context that Stop returns, then close the Locker.
// Options.Context ends jobs and waits before that.
package cronlock
