package etcdlock

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
)

// The locks of one AcquireAll, or of its release, are each taken or freed by a goroutine of
// their own, as if it were alone. Only their first transactions wait for each other: up to a
// hundred are nested in one, which is sent for all.

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	b.callInBatches(ctx, len(as), func(ctx context.Context, i int) { leases[i], errs[i] = b.Acquire(ctx, as[i]) })
	return leases, errs
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	b.callInBatches(ctx, len(leases), func(ctx context.Context, i int) {
		if _, ok := leases[i].(*lease); !ok {
			leaveBatch(ctx)
		}
		errs[i] = leases[i].Release(ctx, lasts[i])
	})
	return errs
}

// callInBatches makes n calls, and sends the first transactions of each hundred as one.
func (b *Backend) callInBatches(ctx context.Context, n int, call func(ctx context.Context, i int)) {
	inBatches(n, func(first, end int) {
		tb := &txnBatch{answered: make(chan struct{})}
		tb.pending.Add(end - first)
		var all sync.WaitGroup
		for i := first; i < end; i++ {
			all.Go(func() {
				ctx := context.WithValue(ctx, memberKey{}, &batchMember{batch: tb})
				defer leaveBatch(ctx)
				call(ctx, i)
			})
		}
		tb.pending.Wait()
		tb.answer = b.sendMerged(ctx, tb.txns)
		close(tb.answered)
		all.Wait()
	})
}

// inBatches calls f with the bounds of each batch of n, up to batchesAtOnce at a time.
func inBatches(n int, f func(first, end int)) {
	var all sync.WaitGroup
	room := make(chan struct{}, batchesAtOnce)
	for first := 0; first < n; first += batchSize {
		room <- struct{}{}
		all.Go(func() {
			f(first, min(first+batchSize, n))
			<-room
		})
	}
	all.Wait()
}

// txnBatch collects the transactions of several calls, which are sent as one.
type txnBatch struct {
	pending sync.WaitGroup // calls that have neither added a transaction nor left the batch

	mu   sync.Mutex // guards txns while calls are pending
	txns []*pb.TxnRequest

	answered chan struct{} // closed when answer is set
	answer   answer
}

// batchMember is one call's membership in a batch. Its context holds it by memberKey.
type batchMember struct {
	batch *txnBatch
	once  sync.Once
}

type memberKey struct{}

// answer is the outcome of one transaction. Without resp and err the transaction was not sent,
// and its call sends it by itself.
type answer struct {
	resp *pb.TxnResponse
	request
	err error
}

// sendInBatch sends t with the batch of the call that ctx is of, if that call has sent nothing
// yet.
func sendInBatch(ctx context.Context, t *pb.TxnRequest) (one answer) {
	p, ok := ctx.Value(memberKey{}).(*batchMember)
	if !ok {
		return one
	}
	p.once.Do(func() { one = p.batch.send(t) })
	return one
}

// leaveBatch takes the call that ctx is of out of its batch: the others no longer wait for it.
func leaveBatch(ctx context.Context) { sendInBatch(ctx, nil) }

// send adds t, unless it is nil, and waits for the answer.
func (tb *txnBatch) send(t *pb.TxnRequest) (one answer) {
	if t == nil {
		tb.pending.Done()
		return one
	}
	tb.mu.Lock()
	at := len(tb.txns)
	tb.txns = append(tb.txns, t)
	tb.mu.Unlock()
	tb.pending.Done()
	<-tb.answered
	if one = tb.answer; one.resp != nil {
		one.resp = tb.answer.resp.Responses[at].GetResponseTxn()
		one.resp.Header = tb.answer.resp.Header // its own has no revision
	}
	return one
}

// sendMerged sends the transactions in one, which is idempotent because each of them is.
func (b *Backend) sendMerged(ctx context.Context, txns []*pb.TxnRequest) answer {
	if len(txns) < 2 {
		return answer{}
	}
	resp, r, err := b.txn(ctx, merged(txns))
	for _, of := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge} {
		if errors.Is(err, of) {
			err = nil // one may be the cause: each call sends its own
		}
	}
	return answer{resp, r, err}
}

// merged returns a transaction that does all of txns. Servers before 3.4.42 and 3.5.28 do not
// check the rights that a nested transaction needs, but all check those of the comparisons and of
// the failure branch. So each key has a comparison, which is always true, and its operation in the
// failure branch, which never runs.
func merged(txns []*pb.TxnRequest) *pb.TxnRequest {
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
