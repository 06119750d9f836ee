package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// listPage is how many keys one request of Locks reads.
	listPage = 500
	// foreign is the Client of a contender that this package has not written.
	foreign = "etcd"
)

// Locks implements [driver.Inspector]. It reads all keys that begin as the pattern does, page by
// page.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return engine.List(func(yield func(*driver.LockInfo) bool) error {
		if b.invalid != nil {
			return b.invalid
		}
		start, end := engine.Literal(pattern), "\x00"
		if start == "" {
			start = "\x00"
		} else {
			end = clientv3.GetPrefixRangeEnd(start)
		}
		last := "" // the last lock that was found: its contenders mostly follow each other
		for more := true; more; {
			resp, _, err := b.find(ctx, &pb.RangeRequest{Key: []byte(start), RangeEnd: []byte(end), Limit: listPage})
			if err != nil {
				return err
			}
			more = resp.More && len(resp.Kvs) > 0
			for _, kv := range resp.Kvs {
				start = string(kv.Key) + "\x00"
				name := lockOf(kv)
				if name == "" || name == last || !engine.Match(pattern, name) {
					continue
				}
				last = name
				info, err := b.Lock(ctx, name)
				if errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid) { // no lock any more, or none of ours
					continue
				}
				if err != nil || info != nil && !yield(info) {
					return err
				}
			}
		}
		return nil
	})
}

// lockOf returns the key of the lock whose contender or record kv is, or "".
func lockOf(kv *mvccpb.KeyValue) string {
	at := strings.LastIndexByte(string(kv.Key), '/')
	if at <= 0 {
		return ""
	}
	name := string(kv.Key[:at])
	if isContender(name+"/", kv) || string(kv.Key) == recordOf(name) && record.IsRecord(string(kv.Value)) {
		return name
	}
	return ""
}

// isContender reports whether kv is what concurrency.Mutex writes below prefix.
func isContender(prefix string, kv *mvccpb.KeyValue) bool {
	return kv.Lease != 0 && string(kv.Key[len(prefix):]) == strconv.FormatInt(kv.Lease, 16)
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (*driver.LockInfo, error) {
	all, recorded, err := b.contenders(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case recorded != nil:
		return b.kinds.Describe(key, resolved(string(recorded.Value), recorded.ModRevision), 0)
	case len(all) == 0:
		resp, _, err := b.find(ctx, one(key))
		if err == nil && len(resp.Kvs) > 0 {
			err = fmt.Errorf("%w: there is a value at %s, and no contender of a lock below it", driver.ErrConflict, key)
		}
		return nil, err
	}
	h := holderOf(all[0])
	var left *pb.LeaseTimeToLiveResponse
	_, err = b.do(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		left, err = b.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: all[0].Lease}, options...)
		return err
	})
	if err == nil {
		h.Left = max(time.Duration(left.TTL)*time.Second, 0)
	}
	return &driver.LockInfo{Key: key, Holders: []driver.Holder{h}, Waiters: len(all) - 1}, nil
}

// contenders returns the contenders of the mutex at key, the holder first, or the record at key.
func (b *Backend) contenders(ctx context.Context, key string) (all []*mvccpb.KeyValue, recorded *mvccpb.KeyValue, err error) {
	if err := b.check(key); err != nil {
		return nil, nil, err
	}
	resp, _, err := b.find(ctx, newest(key+"/", 0, 0))
	if err != nil {
		return nil, nil, err
	}
	for _, kv := range resp.Kvs {
		switch {
		case string(kv.Key) == recordOf(key) && record.IsRecord(string(kv.Value)):
			recorded = kv
		case isContender(key+"/", kv):
			all = append(all, kv)
		}
	}
	slices.SortFunc(all, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	return all, recorded, nil
}

// holderOf returns who holds the lock that kv owns. The ID of another client's is its etcd lease.
func holderOf(kv *mvccpb.KeyValue) driver.Holder {
	h := driver.Holder{ID: string(kv.Value), Client: record.Client, Token: uint64(kv.CreateRevision) << engine.TokenBits}
	if process, n, ok := strings.Cut(h.ID, ":"); !ok || len(process) != 36 || n == "" {
		h = driver.Holder{ID: strconv.FormatInt(kv.Lease, 16), Client: foreign}
	}
	return h
}

// Break implements [driver.Inspector].
func (b *Backend) Break(ctx context.Context, key, id string) error {
	lost := fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	all, recorded, err := b.contenders(ctx, key)
	switch {
	case err != nil:
		return err
	case recorded != nil:
		return b.kinds.Break(ctx, key, id)
	case len(all) == 0 || holderOf(all[0]).ID != id:
		return lost
	}
	at := string(all[0].Key)
	resp, r, err := b.free(ctx, nil, ifModified(at, all[0].ModRevision), del(at))
	if err == nil && !resp.Succeeded && !r.mayHaveRun {
		return lost
	}
	return err
}
