// Package errlost defines an analyzer that finds errors of locks that no one looks
// at.
//
// # Analyzer errlost
//
// errlost: find discarded and wrongly compared errors of locks
//
// The error of a wrapper says whether the method ran at all (ErrNotAcquired) and
// whether it had the lock to its end (ErrLost). Who drops it takes for done what
// never happened, or what another holder did as well:
//
//	svc.Pay(ctx, id)        // the error is dropped
//	_ = svc.Pay(ctx, id)    // likewise
//	go svc.Pay(ctx, id)     // likewise
//	lock.Check(ctx)         // has no other effect than its error
//	defer held.Release(nil) // where the function could return the loss
//	err = svc.Pay(ctx, id)  // where err is assigned again, or never read but by _ = err
//
// A go statement may drop the error of a leader's method: it says that the context has
// ended.
//
// Errors of this module are wrapped, so that comparing them is never true:
//
//	if err == lock.ErrNotAcquired { // should be errors.Is(err, lock.ErrNotAcquired)
//
// The suggested fix is given where the file imports errors. errors.Is with its arguments
// swapped is reported likewise, and so are type assertions and type switches that look for
// a *lock.Error or *lock.PanicError: errors.As finds them also where another error wraps
// them. Calls in tests are left alone.
package errlost
