// Package cronlock runs jobs of cron (github.com/robfig/cron/v3) under locks of package lock:
// on one process at a time, or once for each planned tick over all processes.
//
// [Exclusive] returns a cron.JobWrapper for existing jobs. [Job] makes a cron.Job of a
// function. The function gets the lock's context, which has the fencing token and ends when
// the lock is lost. [AddOnce] adds such a function to a Cron, to be run once for each tick.
//
// # The planned tick
//
// cron does not tell a job when it was planned, or which entry it is. So AddOnce asks the
// Cron for its entry when the run begins. The entry's Prev is the tick that the schedule
// planned for this run, not the time at which the run began. A schedule names times of day,
// such as 02:00, so all processes have the same ticks even if their clocks differ. A process
// whose clock is behind comes later, and finds that the tick is completed. So does a process
// whose clock is set back and reaches the tick again. Three things follow:
//
//   - "@every 5m" counts from the start of a process, so no other process has its ticks.
//     AddOnce refuses it. Write "*/5 * * * *" instead.
//   - A schedule without a time zone uses the zone of its Cron. Give all processes the same
//     zone, by cron.WithLocation or by "CRON_TZ=UTC 0 2 * * *".
//   - A wrapper in the Cron's own chain may delay a run until the next tick is due, as
//     cron.DelayIfStillRunning does. Then it counts as a run of that tick. AddOnce needs no
//     such wrapper: the lock delays runs, and each keeps its tick.
//
// The engine remembers the last 256 ticks of a key. So two clocks may differ by up to 256
// ticks; with a tick each second that is four minutes.
//
// # When a run fails
//
// A tick is completed when the function has returned nil while the lock was still held. After
// an error, a panic or the end of the process, the tick is run by another process that waits
// for the lock, or whose clock reaches the tick later. If there is none, nobody runs it. No
// process tries twice. So a job that must not miss a tick should find in its own data what is
// left to do.
//
// # The end
//
// Stop the Cron, wait for the context that Stop returns, then close the Locker.
// Options.Context ends jobs and waits before that.
package cronlock
