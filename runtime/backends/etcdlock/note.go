package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// noteKey is where the note of this name is.
func noteKey(name string) string { return "lockgen." + name }

// PutNote implements [driver.Noter] by a key on an etcd lease, one for all notes of b that
// have this ttl, which each of them keeps alive.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if b.invalid != nil {
		return b.invalid
	}
	t := &pb.TxnRequest{Success: []*pb.RequestOp{del(noteKey(name))}}
	if ttl > 0 {
		lease := (b.notes^uint64(ttl))>>1 | 1 // the same each time
		// Without the options: of a stream gRPC may set the peer's address after the answer.
		_, err := b.do(ctx, func(ctx context.Context, _ ...grpc.CallOption) error {
			stream, err := b.leases.LeaseKeepAlive(ctx)
			if err == nil {
				_, err = keepAlive(stream, int64(lease))
			}
			return err
		})
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			if _, err = b.grant(ctx, int64(lease), ttl); errors.Is(err, rpctypes.ErrLeaseExist) { // for another note
				err = nil
			}
		}
		if err != nil {
			return err
		}
		t.Success[0] = put(noteKey(name), text, int64(lease))
	}
	_, _, err := b.txn(ctx, t)
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	if b.invalid != nil {
		return "", b.invalid
	}
	resp, _, err := b.find(ctx, one(noteKey(name)))
	if err != nil || len(resp.Kvs) == 0 {
		return "", err
	}
	return string(resp.Kvs[0].Value), nil
}
