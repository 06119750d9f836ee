// Package fencing defines an analyzer that finds writes which bring no fencing
// token.
//
// # Analyzer fencing
//
// fencing: find writers reached without a fencing token
//
// No lock stops a holder that was paused past its lease: only the store can, by
// refusing a token that is lower than one it has seen. A function that writes so is
// annotated, and names the parameter that brings the token (lock.Token is a uint64;
// a struct that carries it will do):
//
//	//lockcheck:fence token
//	func (s *Store) Save(ctx context.Context, o Order, token uint64) error { … }
//
// Each call must then pass what may have come from lock.Token or lock.TokenOf.
// Reported are a constant, a value of which no part can be a token, a variable that is
// never given a value, and the clock or a random number. So are a field in which another
// method has kept the token of an earlier lock, and a token whose ok is dropped where no
// lock need be held. A function that passes a parameter of its own on is a writer too,
// so that its callers are looked at, in other packages as well.
//
// Without a name the writer takes the token from its context:
//
//	//lockcheck:fence
//	func (s *Store) Save(ctx context.Context, o Order) error {
//		token, ok := lock.Token(ctx)
//		…
//
// Reported are a writer that asks for none, neither itself nor in what it calls, and
// a call whose context owns no lock for sure: context.Background(),
// context.WithoutCancel(ctx), lock.Detach(ctx), nil.
// lock.Token in a method with two directives is reported: it tells none.
//
// The annotation can stand on functions, methods and methods of interfaces. lock.Token
// of a context that owns nothing is reported without it.
package fencing
