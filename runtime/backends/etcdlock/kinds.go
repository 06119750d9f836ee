package etcdlock

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// methods call the waiters of a condition, tell who leads, and keep values.
type methods = record.Register

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// recordOf returns where the record of a key is: among the contenders of a mutex, so that a
// mutex finds a record that is in its way, and a record a mutex.
func recordOf(key string) string { return key + "/lockgen.record" }

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// recordPlace is the record at a key as it was read: [record.Answer.Place].
type recordPlace struct {
	created  int64 // its create revision
	modified int64 // its mod revision; 0 is no record
	noMutex  bool  // no contender of a mutex is older
}

// Swap implements [record.Store]. A mutex that is younger than the record gives way to it. So
// the first to enter a record looks for an older mutex first. If there is one, the record stays
// as it is: it may be the tombstone of an undo.
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if err := b.check(w.Key); err != nil {
		return a, err
	}
	seen, _ := w.Place.(recordPlace)
	if w.Takes && !w.Look && seen.modified > 0 && !seen.noMutex {
		return b.swapIfNoMutex(ctx, w)
	}
	t := swapping(w, seen)
	if w.Takes && seen.modified == 0 {
		t.Compare = append(t.Compare, ifNoneSince(w.Key+"/", 0))
		t.Failure = append(t.Failure, get(names(w.Key+"/", readLimit)))
	}
	resp, err := b.send(ctx, t, &a)
	if err != nil {
		return a, err
	}
	a.MayHaveRun = a.MayHaveRun && !w.Look
	fill(&a, w, seen, resp)
	if a.Done || a.Value != "" || len(t.Failure) < 2 {
		return a, nil
	}
	if is := contender(w.Key+"/", found(resp, 1), 0); is != "" {
		return a, record.InsteadOf(is)
	} else if w.Look {
		return a, nil
	}
	checked, err := b.swapIfNoMutex(ctx, w) // only keys of other locks were read
	checked.MayHaveRun = checked.MayHaveRun || a.MayHaveRun
	return checked, err
}

// swapIfNoMutex is Swap after a look for an older mutex. If there is no record yet it first creates
// an empty one, to which later mutexes give way.
func (b store) swapIfNoMutex(ctx context.Context, w record.Write) (a record.Answer, err error) {
	at, all := recordOf(w.Key), get(names(w.Key+"/", 0))
	seen, _ := w.Place.(recordPlace)
	empty := record.Write{Key: w.Key, Value: record.Empty, Look: seen.modified > 0}
	t := swapping(empty, recordPlace{})
	t.Success, t.Failure = append(t.Success, all), append(t.Failure, all)
	resp, err := b.send(ctx, t, &a)
	if err != nil {
		return a, err
	}
	fill(&a, empty, recordPlace{}, resp)
	there, ok := a.Place.(recordPlace)
	if a.Done = false; !ok {
		return a, nil // it is gone
	}
	if is := contender(w.Key+"/", found(resp, 1), there.created); is != "" {
		if a.Value == record.Empty { // so it is no tombstone
			_, _, err = b.txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{ifModified(at, there.modified)}, Success: []*pb.RequestOp{del(at)}})
			a.MayHaveRun = a.MayHaveRun || err != nil
		}
		return a, record.InsteadOf(is)
	}
	there.noMutex = true
	a.Place = there
	if there.modified != seen.modified && (a.Value != record.Empty || seen.modified > 0) {
		return a, nil
	}
	if resp, err = b.send(ctx, swapping(w, there), &a); err != nil {
		a.MayHaveRun = true // the empty record stays
		return a, err
	}
	fill(&a, w, there, resp)
	return a, nil
}

// send sends t, and notes in a whether it may have run.
func (b store) send(ctx context.Context, t *pb.TxnRequest, a *record.Answer) (*pb.TxnResponse, error) {
	resp, r, err := b.txn(ctx, t)
	a.MayHaveRun = a.MayHaveRun || r.mayHaveRun
	return resp, err
}

// swapping returns the transaction of w, conditional on the record as it was seen. If the record
// is another, the transaction reads it.
func swapping(w record.Write, seen recordPlace) *pb.TxnRequest {
	at := recordOf(w.Key)
	t := &pb.TxnRequest{Compare: []*pb.Compare{ifModified(at, seen.modified)}, Failure: []*pb.RequestOp{get(one(at))}}
	switch {
	case w.Look:
		t.Compare[0] = ifCreated(at, -1) // which is never so: only look
	case w.Value == "":
		t.Success = []*pb.RequestOp{del(at)}
	default:
		t.Success = []*pb.RequestOp{put(at, w.Value, 0)}
	}
	return t
}

// fill sets in a what resp says of w's transaction, which was conditional on the place seen.
func fill(a *record.Answer, w record.Write, seen recordPlace, resp *pb.TxnResponse) {
	a.Done, a.Value, a.Place = resp.Succeeded, "", nil
	switch {
	case !resp.Succeeded:
		for _, kv := range found(resp, 0) {
			a.Value = resolved(string(kv.Value), kv.ModRevision)
			a.Place = recordPlace{kv.CreateRevision, kv.ModRevision, !record.Idle(a.Value)}
		}
	case w.Value != "":
		now := resp.Header.Revision
		a.Value = resolved(w.Value, now)
		a.Place = recordPlace{cmp.Or(seen.created, now), now, seen.noMutex || w.Takes}
	}
}

func resolved(value string, revision int64) string {
	return record.ResolveRevision(value, uint64(revision))
}

// contender says what of kvs is in the way of the record below prefix, created at that revision
// (0: not yet created): "" if nothing is.
func contender(prefix string, kvs []*mvccpb.KeyValue, created int64) string {
	for _, kv := range kvs {
		switch {
		case created > 0 && kv.CreateRevision > created: // it gives way to the record
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
