// Package fence compares the fencing token of a lock at the resource that the lock protects.
//
// A lock can't stop a holder that was paused for longer than its lease. The holder goes on
// where it stopped, and writes at the same time as the next holder. The resource can stop it:
// it remembers the highest token that it has seen, and refuses a lower one. [lock.Token]
// returns the token. This package has the comparison for several kinds of resources:
//
//   - a database: [Gate] keeps the highest token of each key in a table of its own, and
//     compares it inside the caller's transaction. [Changed] reports whether the caller's own
//     UPDATE, with the token in its WHERE clause, has changed a row.
//   - Redis: [RedisSet] is a script that writes a value and its token in one step.
//   - a service: [SetHeader] sends the token with a request, and [Handler] refuses a request
//     with a lower token. The module adapters/grpclock does the same for gRPC.
//
// Each refusal is an error that wraps [ErrStale]. It is final: the caller is no longer the
// holder, and trying again does not help.
//
// Tokens are compared for one key on one engine. If a key moves to another engine, the tokens
// there must begin above the old ones.
package fence
