package etcdlock

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What a Locker takes or frees for one call is sent in as few transactions as there can be.
// Each lock has a transaction of its own all the same, nested in that which is sent: only
// the first attempts are made together, and what they leave open goes on as it does for a
// lock by itself.

// answer is what came of one transaction that was sent together with others. With neither
// resp nor err it is to be sent by itself.
type answer struct {
	resp *pb.TxnResponse
	request
	err error
}

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	byClass := map[class][]int{}
	var work sync.WaitGroup
	for i, a := range as {
		if c, ok := b.joins(a); ok {
			byClass[c] = append(byClass[c], i)
		} else {
			work.Go(func() { leases[i], errs[i] = b.Acquire(ctx, a) })
		}
	}
	for c, all := range byClass {
		s, err := b.sessions.Get(ctx, c)
		if err != nil {
			for _, i := range all {
				errs[i] = err
			}
			continue
		}
		inBatches(len(all), func(first, end int) {
			b.acquireTogether(ctx, s, all[first:end], as, leases, errs)
		})
		s.Drop()
	}
	work.Wait()
	return leases, errs
}

// joins reports whether a can be sent together with others, and in the sessions of which
// class.
func (b *Backend) joins(a *driver.Acquisition) (class, bool) {
	k, err := b.keysOf(a)
	if err != nil || a.Mode.Kind != 0 || a.Queue || b.isUndone(a.ID) {
		return class{}, false
	}
	seconds, err := secondsFor(a.TTL)
	return class{k.locker, seconds}, err == nil
}

// acquireTogether makes the attempts which of as, in s.
func (b *Backend) acquireTogether(ctx context.Context, s *session, which []int, as []*driver.Acquisition, leases []driver.Lease, errs []error) {
	var entries []*entry
	var asked []int
	var txns []*pb.TxnRequest
	var work sync.WaitGroup
	for _, i := range which {
		a := as[i]
		k, _ := b.keysOf(a) // joins has
		e := b.enterAtOnce(k)
		if e == nil {
			work.Go(func() { leases[i], errs[i] = b.Acquire(ctx, a) })
			continue
		}
		if a.Tokens > 1 && s.Left() < a.TTL {
			s.Ask() // beside the transaction: see entry.acquire
		}
		entries, asked, txns = append(entries, e), append(asked, i), append(txns, e.creation(s, a))
	}
	for n, began := range b.together(ctx, txns) {
		work.Go(func() {
			defer entries[n].leave()
			i := asked[n]
			leases[i], errs[i] = entries[n].take(ctx, s, as[i], began)
		})
	}
	work.Wait()
}

// enterAtOnce is enter, but returns nil if another has the entry's turn, or if the entry
// has a key.
func (b *Backend) enterAtOnce(k keys) *entry {
	b.mu.Lock()
	e := b.useLocked(entryID{k.locker, k.lock})
	b.mu.Unlock()
	select {
	case e.turn <- struct{}{}:
	default:
		e.drop()
		return nil
	}
	if e.known() {
		e.leave()
		return nil
	}
	e.keys = k
	return e
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	inBatches(len(leases), func(first, end int) {
		var asked []int
		var txns []*pb.TxnRequest
		var work sync.WaitGroup
		for i := first; i < end; i++ {
			if l, ok := leases[i].(*lease); ok {
				asked, txns = append(asked, i), append(txns, l.deletion())
			} else {
				work.Go(func() { errs[i] = leases[i].Release(ctx, lasts[i]) })
			}
		}
		for n, began := range b.together(ctx, txns) {
			i := asked[n]
			work.Go(func() { errs[i] = leases[i].(*lease).release(ctx, began) })
		}
		work.Wait()
	})
	return errs
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

// together sends the txns in one, which is idempotent because each of them is. The result
// has an answer for each.
func (b *Backend) together(ctx context.Context, txns []*pb.TxnRequest) []*answer {
	answers := make([]*answer, len(txns))
	for i := range answers {
		answers[i] = &answer{}
	}
	if len(txns) < 2 {
		return answers
	}
	resp, r, err := b.txn(ctx, joined(txns))
	for _, of := range []error{rpctypes.ErrPermissionDenied, rpctypes.ErrLeaseNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge} {
		if errors.Is(err, of) {
			err = nil // the whole was refused, which may be for the sake of one
		}
	}
	for i, one := range answers {
		one.request, one.err = r, err
		if resp != nil {
			one.resp = resp.Responses[i].GetResponseTxn()
			one.resp.Header = resp.Header // its own has no revision
		}
	}
	return answers
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
