package etcdlock

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// noteKey is where the note of this name is.
func noteKey(name string) string { return "lockgen." + name }

// PutNote implements [driver.Noter] by a key on an etcd lease of its own.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if b.invalid != nil {
		return b.invalid
	}
	t := &pb.TxnRequest{Success: []*pb.RequestOp{del(noteKey(name))}}
	if ttl > 0 {
		lease := newLeaseID()
		if _, err := b.grant(ctx, lease, ttl); err != nil {
			return err
		}
		t.Success[0] = put(noteKey(name), text, lease)
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
