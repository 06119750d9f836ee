// Package grpclock delegates locks over gRPC: if a method holds a lock and calls another
// server, the handler there works inside that lock. The guarantees and limits of [lock.Inject]
// and [lock.Extract] hold here too.
//
// The caller makes a client for each service that it delegates to, with the name of that
// service. The callee accepts only delegations for its own name:
//
//	grpc.NewClient(target, grpc.WithChainUnaryInterceptor(grpclock.UnaryClientInterceptor(signer, "stock")))
//	grpc.NewServer(grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(keyring)))
//
// Whoever has a delegation is let into the lock until the delegation ends, so use TLS. Put the
// interceptor of the client after those that retry, so that each attempt has a delegation of
// its own.
//
// # Streams
//
// There is no interceptor for streams. Only one callee of a hold is inside at a time, and a
// delegation ends with the lease that was delegated, so a long stream would block other callees
// and lose its lock. For a short stream use [MetadataCarrier] with lock.Inject and lock.Extract.
package grpclock
