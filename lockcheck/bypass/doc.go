// Package bypass defines an analyzer that finds calls which reach an annotated
// method without its lock.
//
// # Analyzer bypass
//
// bypass: find annotated methods called without their lock
//
// The lock of a //lock: directive is taken by the generated wrapper and by nothing
// else. A call of the method itself compiles, runs and excludes no one:
//
//	//lock:key="order:<id>"
//	func (s *Service) Pay(ctx context.Context, id int64) error { … }
//
//	func (s *Service) PayAll(ctx context.Context, ids []int64) error {
//		for _, id := range ids {
//			if err := s.Pay(ctx, id); err != nil { // no lock: s is not the wrapper
//				return err
//			}
//		}
//		return nil
//	}
//
// So does a value that becomes an interface before it is wrapped:
//
//	var p Payer = &Service{} // should be NewServiceWithLock(&Service{}, locker)
//
// A generic function counts whose constraint has the annotated method, and so does an any
// whose type is asserted in the same function or, as a parameter, in one of this package.
//
// A call from a method that has the same key is reported as well: it is right only as
// long as both directives and all callers stay as they are. There is no fix for it unless
// the method called is reentrant: its wrapper would return ErrDeadlock.
//
// A method calls others of its type through a field that holds the wrapper, which
// the constructor sets; where the type has one, the suggested fix uses it. Calls in
// tests are left alone, and so are those of an annotated method of an interface,
// which may well have the wrapper behind it.
//
// A call that is meant to have no lock says so:
//
//	s.Pay(ctx, id) //lockcheck:ignore bypass the caller holds the lock of the batch
package bypass
