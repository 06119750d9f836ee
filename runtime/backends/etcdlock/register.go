package etcdlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
)

// processKey is where a process has what [driver.Process] says of it, in JSON.
func processKey(id string) string { return "lockgen.process/" + id }

// Register implements [driver.Registrar] by a key on an etcd lease of its own, which is kept
// alive by one request.
func (b *Backend) Register(ctx context.Context, p *driver.Process, ttl time.Duration) error {
	if b.invalid != nil {
		return b.invalid
	}
	sum := fnv.New64a()
	sum.Write([]byte(p.ID))
	id := clientv3.LeaseID(sum.Sum64()>>2 | 1) // the same each time
	if ttl <= 0 {
		_, err := b.client.Revoke(ctx, id)
		return err
	}
	if _, err := b.client.KeepAliveOnce(ctx, id); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = b.do(ctx, func(ctx context.Context, options ...grpc.CallOption) error {
		_, err := b.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(id), TTL: int64(ttl / time.Second)}, options...)
		if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) { // by an attempt that had no answer
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = b.client.Put(ctx, processKey(p.ID), string(text), clientv3.WithLease(id))
	return err
}

// Process implements [driver.Registrar].
func (b *Backend) Process(ctx context.Context, id string) (*driver.Process, error) {
	if b.invalid != nil {
		return nil, b.invalid
	}
	resp, _, err := b.find(ctx, one(processKey(id)))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	p := &driver.Process{}
	if err := json.Unmarshal(resp.Kvs[0].Value, p); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", driver.ErrConflict, processKey(id), err)
	}
	return p, nil
}
