// Package lostctx defines an analyzer that finds contexts which lose their lock.
//
// # Analyzer lostctx
//
// lostctx: find contexts that lose the lock they should own
//
// The context says which locks a call owns. A call under a held lock that passes another
// context does not re-enter: it waits for its own caller, for ever or until wait is
// over, even if the directive says reentrant.
//
//	//lock:key="order:<id>" reentrant
//	func (s *Service) Pay(ctx context.Context, id int64) error {
//		return s.self.Book(context.Background(), id) // locks order:<id> again
//	}
//
// The chain of calls may be longer and lead through other packages; the report names each
// call. A chain is reported if the second lock has the same template, unless its values are
// clearly different. A context has lost the lock if it is context.Background(),
// context.TODO(), context.WithoutCancel(…), lock.Detach(…), a package's variable or
// a field of the receiver, or if it is made from one of these.
//
// In the annotated method itself these are reported too:
//
//   - context.WithoutCancel(ctx): code that runs under it owns no lock, and goes on when
//     the lock is lost. It is not reported in deferred clean-up, nor if the method asks
//     for its fencing token, which guards the write instead.
//   - a context given to a go statement, to the Go of a WaitGroup or to time.AfterFunc, or
//     sent on a channel, if the method does not wait for the code that uses it. Once the
//     method has returned, another may have the lock, and the context is cancelled.
//     lock.Detach(ctx) is cancelled at the same time, so it is reported too;
//     context.WithoutCancel(lock.Detach(ctx)) is not. A wait counts if it is for something
//     that the goroutine names, or that is named by a second goroutine which waits for the
//     first. wg.Wait() for another group and a receive from another channel do not count.
//   - a write to a database under context.Background() or the Context of an *http.Request,
//     which goes on when the lock is lost. Exec and Begin of a *sql.DB are reported too,
//     because they take no context. Not reported is a write after a failure, in deferred
//     clean-up, in a method that asks for its fencing token, or in a transaction that began
//     under the lock's context.
//   - the context stored in a field of the receiver or in a package's variable.
package lostctx
