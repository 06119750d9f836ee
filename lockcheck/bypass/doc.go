// Package bypass defines an analyzer that finds calls which reach an annotated
// method without its lock.
//
// # Analyzer bypass
//
// bypass: find annotated methods called without their lock
//
// Only the generated wrapper takes the lock of a //lock: directive. A call of the
// method itself compiles and runs, but takes no lock:
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
// The same happens if a value becomes an interface before it is wrapped:
//
//	var p Payer = &Service{} // should be NewServiceWithLock(&Service{}, locker)
//
// The constraint of a generic function counts as such an interface. So does an interface
// that an any is asserted to be, in the same function, or in a function of this package that
// has the any as a parameter.
//
// A call from a method that has the same key is reported as well: it is right only as
// long as both directives and all callers stay as they are. A fix for it is suggested only
// if the called method is reentrant. Otherwise its wrapper would return ErrDeadlock.
//
// A method should call other methods of its type through a field that holds the wrapper
// and that the constructor sets. If the type has such a field, the suggested fix uses it.
// Calls in tests are not reported. Neither are calls of an annotated method of an interface,
// whose value may be the wrapper.
//
// If a call is meant to have no lock, a comment says so:
//
//	s.Pay(ctx, id) //lockcheck:ignore bypass the caller holds the lock of the batch
package bypass
