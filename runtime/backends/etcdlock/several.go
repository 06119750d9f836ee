package etcdlock

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What a Locker takes or frees for one call is sent in as few transactions as there can be:
// the first of each lock is nested in one that is sent for up to a hundred. Each lock goes
// its own way all the same, in a goroutine of its own. It is only that its first transaction
// waits for those of the others.

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	b.jointly(ctx, len(as), func(ctx context.Context, i int) { leases[i], errs[i] = b.Acquire(ctx, as[i]) })
	return leases, errs
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	b.jointly(ctx, len(leases), func(ctx context.Context, i int) {
		if _, ok := leases[i].(*lease); !ok {
			goAlone(ctx)
		}
		errs[i] = leases[i].Release(ctx, lasts[i])
	})
	return errs
}

// jointly makes n calls at once, and sends the first transactions of a hundred as one.
func (b *Backend) jointly(ctx context.Context, n int, call func(ctx context.Context, i int)) {
	inBatches(n, func(first, end int) {
		j := &joint{answered: make(chan struct{})}
		j.awaited.Add(end - first)
		var all sync.WaitGroup
		for i := first; i < end; i++ {
			all.Go(func() {
				ctx := context.WithValue(ctx, partKey{}, &part{joint: j})
				defer goAlone(ctx)
				call(ctx, i)
			})
		}
		j.awaited.Wait()
		j.whole = b.sendAll(ctx, j.txns)
		close(j.answered)
		all.Wait()
	})
}

// inBatches calls f with the bounds of each batch of n, of several at the same time.
func inBatches(n int, f func(first, end int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, batchesAtOnce)
	for first := 0; first < n; first += batch {
		room <- struct{}{}
		all.Go(func() {
			f(first, min(first+batch, n))
			<-room
		})
	}
	all.Wait()
}

// joint is one transaction that is sent for several calls.
type joint struct {
	awaited sync.WaitGroup // calls that have neither added a transaction nor gone alone

	mu   sync.Mutex // guards txns while any is awaited
	txns []*pb.TxnRequest

	answered chan struct{} // closed when whole is set
	whole    answer
}

// part is what one call has in a joint. A context has it by partKey.
type part struct {
	joint *joint
	once  sync.Once
}

type partKey struct{}

// answer is what has come of one transaction. Without resp and err it is to be sent by
// itself.
type answer struct {
	resp *pb.TxnResponse
	request
	err error
}

// sendJointly sends t together with those of the other calls, if ctx is of one that has sent
// nothing yet.
func sendJointly(ctx context.Context, t *pb.TxnRequest) (one answer) {
	p, ok := ctx.Value(partKey{}).(*part)
	if !ok {
		return one
	}
	p.once.Do(func() { one = p.joint.send(t) })
	return one
}

// goAlone has the other calls not wait for the one that ctx is of.
func goAlone(ctx context.Context) { sendJointly(ctx, nil) }

// send adds t, if that is not nil, and waits for the answer.
func (j *joint) send(t *pb.TxnRequest) (one answer) {
	if t == nil {
		j.awaited.Done()
		return one
	}
	j.mu.Lock()
	at := len(j.txns)
	j.txns = append(j.txns, t)
	j.mu.Unlock()
	j.awaited.Done()
	<-j.answered
	if one = j.whole; one.resp != nil {
		one.resp = j.whole.resp.Responses[at].GetResponseTxn()
		one.resp.Header = j.whole.resp.Header // its own has no revision
	}
	return one
}

// sendAll sends the transactions in one, which is idempotent because each of them is.
func (b *Backend) sendAll(ctx context.Context, txns []*pb.TxnRequest) answer {
	if len(txns) < 2 {
		return answer{}
	}
	resp, r, err := b.txn(ctx, joined(txns))
	for _, of := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge} {
		if errors.Is(err, of) {
			err = nil // the whole was refused, which may be for the sake of one
		}
	}
	return answer{resp, r, err}
}

// joined returns a transaction that does all of txns. Servers before 3.4.42 and 3.5.28 do
// not ask for the rights that a nested transaction needs. All do for what stands beside it,
// be it never done: the comparisons here are true for any key.
func joined(txns []*pb.TxnRequest) *pb.TxnRequest {
	all := &pb.TxnRequest{}
	for _, t := range txns {
		always := ifCreated(string(t.Compare[0].Key), -1)
		always.Result = pb.Compare_GREATER
		all.Compare = append(all.Compare, always)
		all.Success = append(all.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}})
		all.Failure = append(all.Failure, t.Success[0])
	}
	return all
}
