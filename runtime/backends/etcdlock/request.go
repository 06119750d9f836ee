package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// resends says when a request without an answer, or refused for the moment, is sent
// again: for nearly three seconds, as an election takes, and for five at most if a
// server does not answer. After five attempts that could not connect there are no more:
// if connections are refused, the caller hears it within a second. Each resend is
// idempotent; after the last the outcome is unknown.
var resends = engine.Schedule{
	Pauses: []time.Duration{
		0, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
		400 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond,
	},
	NotSent: 5,
	Longest: 5 * time.Second,
}

// request is one call of etcd, sent as often as needed.
type request struct {
	sent       driver.Instant // before the last attempt, which was the one that was answered
	mayHaveRun bool           // some attempt had no answer
}

// do sends call until it is answered, ctx ends, or b is closed. call is idempotent.
func (b *Backend) do(ctx context.Context, call func(ctx context.Context, options ...grpc.CallOption) error) (request, error) {
	leaveBatch(ctx)
	ctx, done := b.life.Within(ctx)
	defer done()
	var r request
	// gRPC sends an attempt again, unseen by us, if a server or a proxy ended it before its context
	// ended. lostAnswers counts the sendings that ran, or may have, and whose answer we did not get.
	var lostAnswers atomic.Int64
	outcome, mayHaveRun, err := resends.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		if b.life.Closed() {
			return engine.Refused, driver.ErrClosed
		}
		if b.conn.GetState() == connectivity.Shutdown {
			return engine.Refused, errClientClosed // clientv3 would try until we cancel it
		}
		var to peer.Peer
		r.sent = driver.Now()
		// A member that has lost its leader says so at once, instead of waiting for one.
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), b.options.AttemptTimeout)
		defer cancel()
		count := func(err error) {
			if o := classify(rpctypes.Error(err), to.Addr != nil); o == engine.Done || o == engine.NoAnswer {
				lostAnswers.Add(1)
			}
		}
		err := rpctypes.Error(call(ctx, grpc.Peer(&to), grpc.OnFinish(count), grpc.MaxCallRecvMsgSize(math.MaxInt32)))
		outcome := classify(err, to.Addr != nil)
		switch outcome {
		case engine.Done:
			lostAnswers.Add(-1)
		case engine.NotSent:
			b.conn.ResetConnectBackoff() // the backoff may be two minutes by now
		}
		return outcome, err
	})
	r.mayHaveRun = mayHaveRun || lostAnswers.Load() > 0
	if outcome == engine.NoAnswer && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", engine.OrClosed(ctx, ctx.Err()), err) // errors.Is finds no context's error in gRPC's status
	}
	return r, explained(err)
}

// classify says what err leaves open; connected is whether a member was reached.
func classify(err error, connected bool) engine.Outcome {
	if err == nil {
		return engine.Done
	}
	var server rpctypes.EtcdError
	if errors.As(err, &server) {
		switch {
		case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrTooManyRequests):
			return engine.Later
		case server.Code() == codes.Unavailable, server.Code() == codes.DeadlineExceeded, server.Code() == codes.Canceled:
			return engine.NoAnswer
		}
		return engine.Refused
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.ResourceExhausted:
		return engine.Refused
	case codes.Unavailable:
		if !connected {
			return engine.NotSent
		}
	}
	return engine.NoAnswer
}

// Servers implements [driver.Located].
func (b *Backend) Servers() []string {
	if b.client == nil {
		return nil
	}
	return b.client.Endpoints()
}

// explained adds to an error about a missing right how to grant it: etcd's error does not say.
func explained(err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("%w: grant a role of the user readwrite on the prefix of the keys", err)
	}
	return err
}

// txn sends a transaction, which must be idempotent: by itself, or together with others if ctx
// is of a batch.
func (b *Backend) txn(ctx context.Context, t *pb.TxnRequest) (*pb.TxnResponse, request, error) {
	one := sendInBatch(ctx, t)
	if one.resp != nil || one.err != nil {
		return one.resp, one.request, one.err
	}
	var resp *pb.TxnResponse
	r, err := b.do(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		resp, err = b.kv.Txn(ctx, t, options...)
		return err
	})
	r.mayHaveRun = r.mayHaveRun || one.mayHaveRun
	return resp, r, err
}

// newLeaseID returns an ID for an etcd lease. We choose it, so that a grant may be sent twice.
func newLeaseID() int64 { return rand.Int64N(1<<62) + 1 }

// inSeconds returns a ttl as etcd tells it.
func inSeconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}

// grant grants an etcd lease, and returns its length, which is more than was asked for if
// the server's least length is.
func (b *Backend) grant(ctx context.Context, id int64, ttl time.Duration) (time.Duration, error) {
	granted := ttl
	r, err := b.do(ctx, func(ctx context.Context, options ...grpc.CallOption) error {
		resp, err := b.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: int64(ttl / time.Second)}, options...)
		if err == nil {
			granted = inSeconds(resp.TTL)
		}
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrLeaseExist) && r.mayHaveRun { // an attempt without an answer made it
		return granted, nil
	}
	return 0, fmt.Errorf("no lease granted: %w", err)
}

// find reads keys, as a majority has them.
func (b *Backend) find(ctx context.Context, what *pb.RangeRequest) (*pb.RangeResponse, request, error) {
	var resp *pb.RangeResponse
	r, err := b.do(ctx, func(ctx context.Context, options ...grpc.CallOption) (err error) {
		resp, err = b.kv.Range(ctx, what, options...)
		return err
	})
	return resp, r, err
}

// The parts of a transaction.

func ifCreated(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev}}
}

// ifNoneSince is true if no key below prefix was created after rev: with 0, if there is none.
func ifNoneSince(prefix string, rev int64) *pb.Compare {
	c := ifCreated(prefix, rev+1)
	c.RangeEnd, c.Result = []byte(clientv3.GetPrefixRangeEnd(prefix)), pb.Compare_LESS
	return c
}

func ifModified(key string, rev int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}
}

func ifValue(key, value string) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: []byte(value)}}
}

func put(key, value string, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease},
	}}
}

func del(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)},
	}}
}

func get(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func one(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

// newest asks for the n newest keys below prefix (0: for all) of those that were
// created at upTo or before (0: of all).
func newest(prefix string, upTo, n int64) *pb.RangeRequest {
	return &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), Limit: n, MaxCreateRevision: upTo,
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_DESCEND,
	}
}

// names is newest without the values.
func names(prefix string, n int64) *pb.RangeRequest {
	r := newest(prefix, 0, n)
	r.KeysOnly = true
	return r
}

// found returns the keys that the i-th operation of a transaction found.
func found(resp *pb.TxnResponse, i int) []*mvccpb.KeyValue {
	return resp.Responses[i].GetResponseRange().GetKvs()
}
