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
// given the transaction, where the commit follows in the same function or is made by
// whoever calls the function literal with it; and a deferred Commit that runs after
// the deferred Release.
//
// With renew=off the lease is fixed: what takes longer runs unlocked. In such a method
// are reported
//
//   - time.Sleep of the ttl or more;
//   - a wait on a channel that is not the method's own, without the context's Done
//     beside it;
//   - calls over the network that take no context, and so have no bound. The suggested
//     fix for database/sql uses the variant that takes one.
package scope
