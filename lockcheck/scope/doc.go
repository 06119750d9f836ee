// Package scope defines an analyzer that finds locks which end too soon.
//
// # Analyzer scope
//
// scope: find locks that end before what they guard does
//
// A lock that is taken inside a transaction is released before the commit. The next
// holder then reads the old data:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	if err := svc.Pay(ctx, tx, id); err != nil { // locks and releases
//		return err
//	}
//	return tx.Commit() // too late
//
// Begin and commit in the annotated method instead. Reported is a call of a wrapper that
// gets the transaction, directly, in a struct or in the context, if the commit follows in
// the same function, is deferred there, or is made by the function that calls the function
// literal around the call. A function whose name says so, such as WithTx or
// RunInTransaction, is taken to put the transaction in the context that it gives to the
// literal. A deferred Commit that runs after the deferred Release is reported too. A lock
// that the directive of the enclosing function holds already is not reported.
//
// With renew=off the lease is fixed: a method that takes longer goes on without the lock.
// In such a method these are reported:
//
//   - time.Sleep of the ttl or more, also in a function that is called and always sleeps;
//   - a wait for a timer or a ticker of the ttl or more, if nothing else ends the wait;
//   - a wait on a channel that the method did not make, without the context's Done
//     beside it;
//   - a call over the network that takes no context and so has no bound, also by an
//     http.Client that is made without a Timeout. The suggested fix for database/sql uses
//     the variant that takes a context.
package scope
