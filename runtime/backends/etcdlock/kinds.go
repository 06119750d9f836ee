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

// methods has a Backend call those that wait for a condition, tell who leads, and keep values.
type methods = record.Register

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// recordOf is where the record of a key is: among the contenders of a mutex, so that a
// mutex finds the key in use by something else, and a record a mutex.
func recordOf(key string) string { return key + "/lockgen.record" }

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// place is where a record is: [record.Answer.Place].
type place struct {
	made    int64 // its create revision
	changed int64 // its mod revision; 0 is no record
	alone   bool  // it is known that no mutex is older
}

// Swap implements [record.Store]. A mutex that is younger than the record gives way to it. So
// whoever is the first to come into a record looks for an older one before. If there is one, the
// record stays as it is: it may be the tombstone of an undo.
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if err := b.check(w.Key); err != nil {
		return a, err
	}
	seen, _ := w.Place.(place)
	if w.Takes && !w.Look && seen.changed > 0 && !seen.alone {
		return b.swapAlone(ctx, w)
	}
	t := swapping(w, seen)
	if w.Takes && seen.changed == 0 {
		t.Compare = append(t.Compare, ifNoneSince(w.Key+"/", 0))
		t.Failure = append(t.Failure, get(names(w.Key+"/", enough)))
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
	alone, err := b.swapAlone(ctx, w) // there are only keys of locks below this one, as far as we see
	alone.MayHaveRun = alone.MayHaveRun || a.MayHaveRun
	return alone, err
}

// swapAlone is Swap where it must be seen first whether the record is alone. Where none was seen
// it makes an empty one, so that the mutexes that come from then on give way.
func (b store) swapAlone(ctx context.Context, w record.Write) (a record.Answer, err error) {
	at, all := recordOf(w.Key), get(names(w.Key+"/", 0))
	seen, _ := w.Place.(place)
	empty := record.Write{Key: w.Key, Value: record.Empty, Look: seen.changed > 0}
	t := swapping(empty, place{})
	t.Success, t.Failure = append(t.Success, all), append(t.Failure, all)
	resp, err := b.send(ctx, t, &a)
	if err != nil {
		return a, err
	}
	fill(&a, empty, place{}, resp)
	there, ok := a.Place.(place)
	if a.Done = false; !ok {
		return a, nil // it is gone
	}
	if is := contender(w.Key+"/", found(resp, 1), there.made); is != "" {
		if a.Value == record.Empty { // which is no tombstone
			_, _, err = b.txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{ifModified(at, there.changed)}, Success: []*pb.RequestOp{del(at)}})
			a.MayHaveRun = a.MayHaveRun || err != nil
		}
		return a, record.InsteadOf(is)
	}
	there.alone = true
	a.Place = there
	if there.changed != seen.changed && (a.Value != record.Empty || seen.changed > 0) {
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

// swapping returns the transaction of w, where the record is as it was seen. It reads the record
// first if that is not so.
func swapping(w record.Write, seen place) *pb.TxnRequest {
	at := recordOf(w.Key)
	t := &pb.TxnRequest{Compare: []*pb.Compare{ifModified(at, seen.changed)}, Failure: []*pb.RequestOp{get(one(at))}}
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
func fill(a *record.Answer, w record.Write, seen place, resp *pb.TxnResponse) {
	a.Done, a.Value, a.Place = resp.Succeeded, "", nil
	switch {
	case !resp.Succeeded:
		for _, kv := range found(resp, 0) {
			a.Value = resolved(string(kv.Value), kv.ModRevision)
			a.Place = place{kv.CreateRevision, kv.ModRevision, !record.Idle(a.Value)}
		}
	case w.Value != "":
		now := resp.Header.Revision
		a.Value = resolved(w.Value, now)
		a.Place = place{cmp.Or(seen.made, now), now, seen.alone || w.Takes}
	}
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
