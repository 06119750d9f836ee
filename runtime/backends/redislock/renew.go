package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

// renewBatch is how many leases one command renews.
const renewBatch = 100

// RenewAll implements [lock.BatchRenewer]: one command for a hundred leases of
// one server (in a Cluster: of one slot), all commands for a server in one
// pipeline, on a connection that acquires and releases do not wait for.
func (b *Backend) RenewAll(ctx context.Context, leases []lock.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	groups := map[group][]int{}
	for i, l := range leases {
		key := l.(*lease).key
		lane, err := b.lanes.of(ctx, key)
		if err != nil {
			errs[i] = err
			continue
		}
		g := group{lane: lane}
		if _, ok := b.own.(*redis.ClusterClient); ok {
			g.slot = slot(key)
		}
		groups[g] = append(groups[g], i)
	}
	pipelines := map[*lane][]*renewal{}
	for g, members := range groups {
		for len(members) > 0 {
			n := min(len(members), renewBatch)
			pipelines[g.lane] = append(pipelines[g.lane], newRenewal(members[:n], leases, ttls))
			members = members[n:]
		}
	}
	done := make(chan struct{}, len(pipelines))
	for lane, renewals := range pipelines {
		go func() {
			b.renew(ctx, lane, renewals, errs)
			done <- struct{}{}
		}()
	}
	for range pipelines {
		<-done
	}
	return errs
}

// group is what may share a command.
type group struct {
	lane *lane
	slot int
}

// renewal is one command.
type renewal struct {
	members []int // indexes into the call's leases
	leases  []*lease
	ttls    []time.Duration
	keys    []string
	args    []any
}

func newRenewal(members []int, leases []lock.Lease, ttls []time.Duration) *renewal {
	r := &renewal{members: members}
	for _, i := range members {
		l := leases[i].(*lease)
		r.leases = append(r.leases, l)
		r.ttls = append(r.ttls, ttls[i])
		r.keys = append(r.keys, l.keys.lock, l.keys.token)
		r.args = append(r.args, l.id, ttls[i].Milliseconds())
	}
	return r
}

func (b *Backend) renew(ctx context.Context, l *lane, renewals []*renewal, errs []error) {
	sent := lock.Now()
	answers, err := l.renewWithin(ctx, renewals)
	for i, r := range renewals {
		failure := err
		if failure == nil {
			failure = r.read(sent, answers[i], errs)
		}
		if failure == nil {
			continue
		}
		b.lanes.passing(ctx, failure) // the watchdog tries again, perhaps elsewhere
		for _, m := range r.members {
			errs[m] = failure
		}
	}
}

// renewWithin is renewPipeline until ctx ends: go-redis hears of a deadline,
// but not of a cancellation, while it reads.
func (l *lane) renewWithin(ctx context.Context, renewals []*renewal) (answers []*redis.Cmd, err error) {
	done := make(chan struct{})
	var cmds []*redis.Cmd
	var failed error
	go func() {
		cmds, failed = l.renewPipeline(ctx, renewals)
		close(done)
	}()
	select {
	case <-done:
		return cmds, failed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// renewPipeline runs renewals in one pipeline, again with the script where the
// server does not know it.
func (l *lane) renewPipeline(ctx context.Context, renewals []*renewal) ([]*redis.Cmd, error) {
	send := func(whole bool) ([]*redis.Cmd, error) {
		pipe := l.client.Pipeline()
		cmds := make([]*redis.Cmd, len(renewals))
		for i, r := range renewals {
			if whole && i == 0 { // the first teaches the server, the rest go by hash
				cmds[i] = pipe.Eval(ctx, renewScript.source, r.keys, r.args...)
			} else {
				cmds[i] = pipe.EvalSha(ctx, renewScript.hash, r.keys, r.args...)
			}
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	}
	cmds, err := send(false)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmds, err = send(true)
	}
	if err != nil && !isAnswer(err) {
		return nil, err
	}
	return cmds, nil
}

// read gives each lease of r what the server answered for it. An error says
// that it answered for none.
func (r *renewal) read(sent lock.Instant, cmd *redis.Cmd, errs []error) error {
	answers, err := cmd.Int64Slice()
	if err == nil && len(answers) != len(r.members) {
		err = fmt.Errorf("the server's answer to a renewal makes no sense: %v", answers)
	}
	if err != nil {
		return err
	}
	for i, m := range r.members {
		if answers[i] == 1 {
			r.leases[i].extend(sent, r.ttls[i])
		} else {
			errs[m] = lock.ErrLost
		}
	}
	return nil
}

var errClosed = errors.New("the backend is closed")
