// Package fence makes the fencing token of a lock useful at the resource that the lock
// protects.
//
// A lock can't stop a holder that was paused for longer than its lease: it goes on where
// it stopped, and writes beside the next holder. The resource can, if it remembers the
// highest token that it has seen and refuses a lower one. [lock.Token] has the token.
// This package has the comparison, for the places where resources are:
//
//   - a database: [Gate] keeps the highest token of each key in a table of its own and
//     compares it inside the caller's transaction. [Changed] tells of a condition in
//     the caller's own UPDATE whether it was met.
//   - Redis: [RedisSet] is a script that writes a value and its token in one step.
//   - a service: [SetHeader] sends the token along with a request, and [Handler] refuses
//     a request with an older one. The module adapters/grpclock does so for gRPC.
//
// Each refusal is an error that wraps [ErrStale]. It is final: the caller is no longer the
// holder, and trying again does not help.
//
// Tokens are compared for one key on one engine. Where a key moves to another engine,
// the tokens there must begin above the old ones.
package fence
