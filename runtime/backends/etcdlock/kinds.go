package etcdlock

import (
	"context"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// methods has a Backend call those that wait for a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// recordOf is where the record of a key is: among the contenders of a mutex, so that a
// mutex finds the key in use by something else, and a record a mutex.
func recordOf(key string) string { return key + "/lockgen.record" }

// CompareAndSwap implements [driver.Agreement].
func (b *Backend) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	return b.kinds.CompareAndSwap(ctx, key, old, next)
}

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store].
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if err := b.check(w.Key); err != nil {
		return a, err
	}
	at := recordOf(w.Key)
	rev, _ := w.Place.(int64)
	t := &pb.TxnRequest{Compare: []*pb.Compare{ifModified(at, rev)}, Failure: []*pb.RequestOp{get(one(at))}}
	if rev == 0 {
		t.Failure = append(t.Failure, get(newest(w.Key+"/", 0, enough)))
	}
	switch {
	case w.Look:
		t.Compare[0] = ifCreated(at, -1) // which is never so: only look
	case w.Value == "":
		t.Success = []*pb.RequestOp{del(at)}
	default:
		t.Success = []*pb.RequestOp{put(at, w.Value, 0)}
	}
	if rev == 0 && !w.Look {
		t.Compare = append(t.Compare, ifNoneSince(w.Key+"/", 0))
	}
	for {
		resp, r, err := b.txn(ctx, t)
		a.MayHaveRun = (a.MayHaveRun || r.mayHaveRun) && !w.Look
		if err != nil {
			return a, err
		}
		a.Done, a.Value, a.Place = resp.Succeeded, "", nil
		made := int64(0) // the revision at which the record was, that is there now
		if kvs := found(resp, 0); resp.Succeeded && w.Value != "" {
			made = resp.Header.Revision
			a.Value, a.Place = resolved(w.Value, made), made
		} else if !resp.Succeeded && len(kvs) > 0 {
			made = kvs[0].CreateRevision
			a.Value, a.Place = resolved(string(kvs[0].Value), kvs[0].ModRevision), kvs[0].ModRevision
		}
		if w.Takes && len(resp.Responses) > 1 {
			if is := contender(w.Key+"/", found(resp, 1), made); is != "" {
				a.MayHaveRun = made > 0 && !b.takeBack(ctx, at, made) || a.MayHaveRun
				return a, record.InsteadOf(is)
			}
		}
		if a.Done || a.Value != "" || len(t.Compare) < 2 {
			return a, nil
		}
		// There are only keys of locks below this one, as far as we see: write it, then look at all.
		all := get(newest(w.Key+"/", 0, 0))
		t.Compare, t.Success, t.Failure[1] = t.Compare[:1], append(t.Success, all), all
	}
}

// takeBack deletes the record that was made at this revision, with all that have come to it since,
// and reports whether it did.
func (b *Backend) takeBack(ctx context.Context, at string, revision int64) bool {
	resp, _, err := b.txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{ifCreated(at, revision)}, Success: []*pb.RequestOp{del(at)}})
	return err == nil && resp.Succeeded
}

func resolved(value string, revision int64) string {
	return record.ResolveRevision(value, uint64(revision))
}

// contender says what of kvs is in the way of a record with this prefix that was made at a
// revision, or is to be made, if that is 0. It is "" if nothing is.
func contender(prefix string, kvs []*mvccpb.KeyValue, made int64) string {
	for _, kv := range kvs {
		switch {
		case made > 0 && kv.CreateRevision > made: // it sees the record, and gives way
		case strings.Contains(string(kv.Key[len(prefix):]), "/"):
		case string(kv.Key) == recordOf(strings.TrimSuffix(prefix, "/")): // it is the record
		case kv.Lease == 0:
			return fmt.Sprintf("%q, which has no lease and so is no lock,", kv.Key)
		default:
			return record.Mutex
		}
	}
	return ""
}

// watchRecord is the [record.Watch] of etcd.
func (b *Backend) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	var failed error
	for resp := range b.watcher.Watch(clientv3.WithRequireLeader(ctx), recordOf(key), clientv3.WithCreatedNotify()) {
		failed = resp.Err()
		if resp.Created && failed == nil {
			ready()
		}
		for _, e := range resp.Events {
			tell(resolved(string(e.Kv.Value), e.Kv.ModRevision))
		}
	}
	return failed
}
