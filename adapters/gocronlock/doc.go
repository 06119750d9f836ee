// Package gocronlock runs jobs of gocron (github.com/go-co-op/gocron/v2) under locks of package
// lock, on one process at a time.
//
// [NewLocker] is for gocron.WithDistributedLocker: each run of a job holds a lock whose key is
// the job's name, so name the jobs. [NewElector] is for gocron.WithDistributedElector: one
// process leads, and runs all jobs.
//
// # Once per tick
//
// gocron does not tell a Locker the planned time of a run. So a Locker can't know that a run
// was done already: a process whose clock is behind comes after the run of another process,
// and runs the job again. There are two ways to prevent this. With an [Elector] only the
// leader runs jobs. With a Policy that has Try and AtLeast, the lock outlasts the run, so a
// process that comes late finds it held. AtLeast must be longer than the difference of the
// clocks, and shorter than the time between two runs. A Policy without Try is for jobs that
// each process should run, but not at the same time: gocron waits for the lock, and then runs
// the job.
//
// # The context of a job
//
// gocron gives a job its own context, and a Locker can't replace it. So the job has no fencing
// token, and does not learn that the lock was lost. Under an Elector, [Elector.Term] returns
// the context of the leadership. Otherwise, if a job must stop when the lock is lost, or if its
// writes must never happen twice, let it take a lock of its own, by lock.Locker.Do or by a
// method with a directive.
//
// # The end
//
// Shut the scheduler down first, then close the Elector, then the Locker.
package gocronlock
