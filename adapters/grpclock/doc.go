// Package grpclock delegates locks over gRPC: what a method does at another server while it
// holds a lock is done inside that lock. See [lock.Inject] and [lock.Extract], whose
// guarantees and limits hold here.
//
// The caller has a client for each service that it delegates to, with the name of that
// service, and the callee accepts what is for its own name:
//
//	grpc.NewClient(target, grpc.WithChainUnaryInterceptor(grpclock.UnaryClientInterceptor(signer, "stock")))
//	grpc.NewServer(grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(keyring)))
//
// A delegation lets its bearer into the lock until it ends, so use TLS, and put the
// interceptor of the client behind those that retry, so that each attempt has one of its own.
//
// # Streams
//
// A stream has no interceptor here, because it is not one call: one callee of a hold is
// inside at a time, and a delegation ends with the lease that was delegated. For a short
// stream use [MetadataCarrier] with lock.Inject and lock.Extract.
package grpclock
