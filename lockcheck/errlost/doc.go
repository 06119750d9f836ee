// Package errlost defines an analyzer that finds errors of locks that nobody reads.
//
// # Analyzer errlost
//
// errlost: find discarded and wrongly compared errors of locks
//
// The error of a wrapper says whether the method ran at all (ErrNotAcquired) and
// whether it had the lock to its end (ErrLost). A caller that drops the error does not learn
// that the method never ran, or that another holder ran at the same time:
//
//	svc.Pay(ctx, id)        // the error is dropped
//	_ = svc.Pay(ctx, id)    // likewise
//	go svc.Pay(ctx, id)     // likewise
//	lock.Check(ctx)         // does nothing but return an error
//	defer held.Release(nil) // in a function that could return the error
//	err = svc.Pay(ctx, id)  // if err is assigned again unread, or only _ = err reads it
//
// A go statement may drop the error of a leader's method, because that error only says that
// the context has ended.
//
// Errors of this module are wrapped, so a comparison by == is never true:
//
//	if err == lock.ErrNotAcquired { // should be errors.Is(err, lock.ErrNotAcquired)
//
// A fix is suggested if the file imports errors. Also reported are errors.Is with its
// arguments swapped, and type assertions and type switches that look for a *lock.Error or
// *lock.PanicError: use errors.As, which finds them even if another error wraps them.
// Calls in tests are not reported.
package errlost
