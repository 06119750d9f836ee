// Package fencing defines an analyzer that finds writes without a fencing token.
//
// # Analyzer fencing
//
// fencing: find writers reached without a fencing token
//
// No lock stops a holder that was paused until its lease was over. Only the store can: it
// refuses a token that is lower than one it has seen. A function that writes to such a store
// is a writer. It is annotated, and the annotation names the parameter that is the token (a
// uint64, or a struct that contains it):
//
//	//lockcheck:fence token
//	func (s *Store) Save(ctx context.Context, o Order, token uint64) error { … }
//
// Each call must then pass a value that may come from lock.Token or lock.TokenOf.
// Reported are a constant, a value of which no part can be a token, a variable that is
// never given a value, and the clock or a random number. Also reported are a field in which
// another method has kept the token of an earlier lock, and a token whose ok is dropped where
// perhaps no lock is held. A function that passes its own parameter on as the token is a
// writer too: its callers are checked as well, also in other packages.
//
// If the annotation names no parameter, the writer takes the token from its context:
//
//	//lockcheck:fence
//	func (s *Store) Save(ctx context.Context, o Order) error {
//		token, ok := lock.Token(ctx)
//		…
//
// Reported are a writer that neither asks for a token nor calls a function that does, and
// a call whose context certainly owns no lock: context.Background(),
// context.WithoutCancel(ctx), lock.Detach(ctx), nil.
//
// The annotation can stand on functions, methods and methods of interfaces. Without any
// annotation two mistakes are reported: lock.Token of a context that owns no lock, and
// lock.Token in a method with two directives, where it can't tell which lock is meant.
package fencing
