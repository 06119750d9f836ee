// Package gocronlock has the locks of package lock run jobs of gocron
// (github.com/go-co-op/gocron/v2) on one process at a time.
//
// [NewLocker] is for gocron.WithDistributedLocker: each run of a job is under a lock whose
// key is the job's name, so name the jobs. [NewElector] is for
// gocron.WithDistributedElector: one process leads, and runs all jobs.
//
// # Once per tick
//
// gocron tells a Locker no planned time, so it can't know that a run was done already. A
// process whose clock is behind comes when the run of another is over, and runs the job
// again. There are two ways out. With an [Elector] the leader alone runs jobs. With a
// Policy that has Try, and an AtLeast that is longer than clocks are apart and shorter
// than the time between two runs, the lock outlasts the run, and who comes late finds it
// held. A Policy without Try is for jobs that must not overlap and that each process is
// to run: gocron waits for the lock, and then runs the job.
//
// # What a job hears
//
// gocron gives a job its own context, and no Locker can put another in its place: the job
// has no fencing token, and does not hear that the lock was lost. Under an Elector,
// [Elector.Term] has the context of the leadership. Otherwise a job that must stop, or
// that writes what must never be written twice, takes a lock of its own by
// lock.Locker.Do, or by a method with a directive.
//
// # The end
//
// Shut the scheduler down first, then close the Elector, then the Locker.
package gocronlock
