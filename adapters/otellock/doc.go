// Package otellock reports to OpenTelemetry what a lock.Locker does: by spans in the trace of
// the caller, and by metrics for each method and pattern.
//
// # Spans
//
// A call that takes a lock has a span "wait Shop.Buy". It lasts from the call until the lock is
// held or the call fails. The method runs under a span "hold Shop.Buy", so spans of the method,
// such as those of database commands, are its children. A re-entry has no spans of its own.
// When lock.Cond.Wait releases the lock, the span ends, and the hold after the wait has no span.
// If a lock is taken by hand, its pattern stands for the method in the name of the span. If it
// has no pattern, "lock" does.
//
// Both spans have the attributes lockgen.method, lockgen.pattern, lockgen.backend (empty for the
// Locker's own backend) and lockgen.key. A hold also has lockgen.token.
//
// # Metrics
//
//	lockgen.acquires       {acquire}  calls, by outcome
//	lockgen.wait.duration  s          from the call until the lock is held or the call fails, by outcome
//	lockgen.hold.duration  s          how long locks were held, by outcome
//	lockgen.renewals       {renewal}  by outcome
//	lockgen.losses         {loss}     locks that were lost while their methods ran
//	lockgen.outages        {backend}  1 while no lease at the backend can be renewed
//	lockgen.holds          {lock}     locks that are held; see [Observer.Watch]
//	lockgen.waiters        {call}     calls that wait; see [Observer.Watch]
//	lockgen.hold.oldest    s          for how long the oldest hold has lasted; see [Observer.Watch]
//	lockgen.wait.oldest    s          for how long the oldest call has waited; see [Observer.Watch]
//	lockgen.cleanups       {command}  acquires and releases without an answer; see [Observer.Watch]
//
// All but the last have lockgen.method, lockgen.pattern and lockgen.backend; an outage has only
// lockgen.backend. The key is not an attribute, because it would make a time series for each
// voucher. Leaders and candidates do not count as the oldest, because they hold and wait for as
// long as their process lives. lockgen.outcome is
//
//	of acquires and waits: acquired, handed_off, reentered, not_acquired, busy, done,
//	    canceled, deadlock, lost, conflict, indeterminate, unavailable, invalid, closed, error
//	of holds: released, unconfirmed (the engine has not confirmed the release), lost
//	of renewals: renewed, failed
//
// The losses of a method, and the outcomes that alert rules count, are exported as 0 from its
// first call on, because Prometheus sees no increase in a counter that begins with 1.
//
// A measurement in a sampled trace can be an exemplar, if the SDK is configured for it.
package otellock
