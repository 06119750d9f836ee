// Package otellock tells OpenTelemetry what a lock.Locker does: spans in the trace of the
// caller, and metrics by method and pattern.
//
// # Spans
//
// A call that takes a lock has a span "wait Shop.Buy" from the call to the lock, or to the
// error. The method runs under a span "hold Shop.Buy", so that what it does in its turn,
// such as commands to a database, stands below it. A re-entry has no spans of its own. The
// span ends where lock.Cond.Wait gives the lock up, and the hold after it has none.
// Where a lock is taken by hand, the pattern stands for the method, and without one "lock".
//
// The attributes of both are lockgen.method, lockgen.pattern, lockgen.backend (empty for
// the Locker's own), lockgen.key and, of a hold, lockgen.token.
//
// # Metrics
//
//	lockgen.acquires       {acquire}  calls, by outcome
//	lockgen.wait.duration  s          from the call to the lock or the error, by outcome
//	lockgen.hold.duration  s          how long locks were held, by outcome
//	lockgen.renewals       {renewal}  by outcome
//	lockgen.losses         {loss}     locks that were lost while their methods ran
//	lockgen.outages        {backend}  1 while no lease at the backend can be renewed
//	lockgen.holds          {lock}     locks that are held; see [Observer.Watch]
//	lockgen.waiters        {call}     calls that wait; see [Observer.Watch]
//	lockgen.hold.oldest    s          for how long the oldest hold has lasted; see [Observer.Watch]
//	lockgen.wait.oldest    s          for how long the oldest call has waited; see [Observer.Watch]
//	lockgen.cleanups       {command}  what goes on in the background; see [Observer.Watch]
//
// All but the last have lockgen.method, lockgen.pattern and lockgen.backend; of an outage
// only the backend is known. No key is an attribute of a metric: there is one for each
// voucher. Leaders and candidates have no part in the oldest: they hold and wait for as long
// as their process lives. lockgen.outcome is
//
//	of acquires and waits: acquired, handed_off, reentered, not_acquired, busy, done,
//	    canceled, deadlock, lost, conflict, indeterminate, unavailable, invalid, closed, error
//	of holds: released, unconfirmed (the engine has not confirmed the release), lost
//	of renewals: renewed, failed
//
// The losses of a method, and the outcomes that alert rules count, are exported as 0 from its
// first call on: Prometheus sees no increase in a counter that begins with 1.
//
// A measurement that is made in a sampled trace can be its exemplar, if the SDK is set so.
package otellock
