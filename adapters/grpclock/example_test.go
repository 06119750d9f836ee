package grpclock_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/adapters/grpclock"
	lock "github.com/lockgen/lockgen/runtime"
)

func Example() {
	secret := []byte("32 random bytes from a secret store")
	signer, err := lock.NewHMACSigner("2026-11", secret) // the caller has it
	if err != nil {
		fmt.Println(err)
		return
	}
	toStock := grpc.WithChainUnaryInterceptor(grpclock.UnaryClientInterceptor(signer, "stock"))
	_ = toStock // conn, err := grpc.NewClient("stock:443", toStock, grpc.WithTransportCredentials(tls))

	verifier, err := lock.NewHMACVerifier("2026-11", secret) // the service "stock" has it
	if err != nil {
		fmt.Println(err)
		return
	}
	keyring, err := lock.NewKeyring("stock", nil, verifier)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(grpclock.UnaryServerInterceptor(keyring)))
	defer server.Stop()
	// Now each method of the server runs inside the locks of its caller.
	fmt.Println(lock.Owns(context.Background(), "voucher:42"))
	// Output: false
}
