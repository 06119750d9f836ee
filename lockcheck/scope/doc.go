// Package scope defines an analyzer that finds locks which end too soon for what
// they guard.
//
// # Analyzer scope
//
// scope: find locks that end before what they guard does
//
// A lock that is taken inside a transaction is released before the commit. The next
// holder then reads what was there before:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	if err := svc.Pay(ctx, tx, id); err != nil { // locks and releases
//		return err
//	}
//	return tx.Commit() // too late
//
// Let the annotated method begin and commit. Reported is a call of a wrapper that is
// given the transaction, itself, in a struct or in the context, where the commit follows
// in the same function, is deferred there, or is made by whoever calls the function literal
// with it; and a deferred Commit that runs after the deferred Release. Not: of a lock that
// the directive of the function around it holds. A function whose name says so,
// such as WithTx or RunInTransaction, is taken to put the transaction in the context that
// it gives to the literal.
//
// With renew=off the lease is fixed: what takes longer runs unlocked. In such a method
// are reported
//
//   - time.Sleep of the ttl or more, also in a function that is called and always sleeps;
//   - a wait for a timer or a ticker of the ttl or more, where nothing else ends it;
//   - a wait on a channel that is not the method's own, without the context's Done
//     beside it;
//   - calls over the network that take no context, and so have no bound, among them those
//     of an http.Client that is made without a Timeout. The suggested fix for database/sql
//     uses the variant that takes one.
package scope
