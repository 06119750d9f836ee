// Package lostctx defines an analyzer that finds contexts which lose their lock.
//
// # Analyzer lostctx
//
// lostctx: find contexts that lose the lock they should own
//
// Ownership travels in the context. A call under a held lock that passes another
// context does not re-enter: it waits for its own caller, for ever or until wait is
// over, even where the directive says reentrant.
//
//	//lock:key="order:<id>" reentrant
//	func (s *Service) Pay(ctx context.Context, id int64) error {
//		return s.self.Book(context.Background(), id) // locks order:<id> again
//	}
//
// The chain may be longer and lead through other packages; the report names each
// call. It is made where the second lock is of the same template, and its values are
// not visibly others. A context counts as lost if it is context.Background(),
// context.TODO(), context.WithoutCancel(…), lock.Detach(…), a package's variable or
// a field of the receiver, or made from one of these.
//
// In the annotated method itself these are reported too:
//
//   - context.WithoutCancel(ctx): what runs under it owns no lock, and goes on when the
//     lock is lost. It is left alone in deferred clean-up, and where the method asks
//     for its fencing token, which guards the write instead.
//   - a context given to a go statement, to the Go of a WaitGroup, to time.AfterFunc or
//     sent on a channel, in a method that does not wait for what uses it: once the method
//     has returned, the lock is another's and the context is cancelled. So is what
//     lock.Detach makes of it; context.WithoutCancel(lock.Detach(ctx)) goes on. A wait
//     counts if it is for something that the goroutine names, or that a goroutine names
//     which waits for it: wg.Wait() for another group and a receive from another channel
//     do not.
//   - a write to a database under context.Background() or the Context of an *http.Request,
//     which goes on when the lock is lost, and Exec or Begin of a *sql.DB, which take no
//     context. It is left alone after a failure, in deferred clean-up, where the method
//     asks for its fencing token, and in a transaction that began under the lock's context.
//   - the context stored in a field of the receiver or in a package's variable.
package lostctx
