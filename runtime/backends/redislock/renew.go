package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// renewBatch is how many leases one command renews.
const renewBatch = 100

// renewRounds is how often a renewal is sent where servers point to, at once,
// before the watchdog is told: here, there, and there for this once.
const renewRounds = 3

// RenewAll implements [driver.BatchRenewer]: one command for a hundred leases of
// one server (in a Cluster: of one slot; where keys may be in several places that
// we do not know: for each lease), all commands for a server in one pipeline, on a
// connection that acquires and releases do not wait for.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(ctx, leases, ttls, b.renewMutexes)
}

func (b *Backend) renewMutexes(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	round := &round{backend: b, leases: leases, ttls: ttls, errs: make([]error, len(leases))}
	for i := range leases {
		round.again = append(round.again, due{member: i})
	}
	for range renewRounds {
		if len(round.again) > 0 {
			round.run(ctx)
		}
	}
	return round.errs
}

// round is a call of RenewAll.
type round struct {
	backend *Backend
	leases  []driver.Lease
	ttls    []time.Duration
	errs    []error

	mu    sync.Mutex
	again []due // what is to be sent once more
}

// due is one lease to renew.
type due struct {
	member int // its index
	to     route
	alone  bool // by its lock's key alone, as others of the slot may be elsewhere
}

// group is what may share a command.
type group struct {
	batcher *batcher
	slot    int
	asking  bool
	alone   int // one more than the lease's index, or 0
}

func (r *round) run(ctx context.Context) {
	b, todo := r.backend, r.again
	r.again = nil
	groups := map[group][]int{}
	for _, d := range todo {
		key := r.leases[d.member].(*lease).key
		batcher, err := b.router.of(ctx, key, d.to, false)
		r.errs[d.member] = err
		if err != nil {
			continue
		}
		g := group{batcher: batcher, asking: d.to.asking}
		if b.router.cluster() != nil {
			g.slot = slot(key)
		}
		if d.alone {
			g.alone = d.member + 1
		}
		groups[g] = append(groups[g], d.member)
	}
	pipelines := map[*batcher][]*renewal{}
	for g, members := range groups {
		most := renewBatch
		if b.router.cluster() == nil && !g.batcher.single.Load() {
			most = 1
		}
		for len(members) > 0 {
			n := min(len(members), most)
			one := newRenewal(members[:n], r.leases, r.ttls)
			one.asking = g.asking
			if g.alone > 0 {
				one.split()
			}
			pipelines[g.batcher] = append(pipelines[g.batcher], one)
			members = members[n:]
		}
	}
	done := make(chan struct{}, len(pipelines))
	for batcher, renewals := range pipelines {
		go func() {
			r.renew(ctx, batcher, renewals)
			done <- struct{}{}
		}()
	}
	for range pipelines {
		<-done
	}
}

// renewal is one command.
type renewal struct {
	script  *script
	members []int // indexes into the call's leases
	leases  []*lease
	ttls    []time.Duration
	keys    []string
	args    []any
	asking  bool
	token   string // the key of the tokens, if r is not about it
}

// split makes r, which is of one lease, about the lock's own key.
func (r *renewal) split() {
	r.script = renewOneScript
	r.token = r.leases[0].keys.token
	r.keys = r.keys[:1]
}

func newRenewal(members []int, leases []driver.Lease, ttls []time.Duration) *renewal {
	r := &renewal{script: renewScript, members: members}
	for _, i := range members {
		l := leases[i].(*lease)
		r.leases = append(r.leases, l)
		r.ttls = append(r.ttls, ttls[i])
		r.keys = append(r.keys, l.keys.lock, l.keys.token)
		r.args = append(r.args, l.id, ttls[i].Milliseconds())
	}
	return r
}

func (r *round) renew(ctx context.Context, l *batcher, renewals []*renewal) {
	sent := driver.Now()
	// Its answer may come yet; but the next renewal shall know where to go.
	defer time.AfterFunc(suspicious, r.backend.router.reload).Stop()
	answers, err := l.renewWithin(ctx, renewals)
	for i, one := range renewals {
		failure := err
		if failure == nil {
			failure = one.read(sent, answers[i], r.errs)
		}
		if failure == nil {
			continue
		}
		to, passing := r.backend.router.passing(failure, l)
		for _, m := range one.members {
			r.errs[m] = failure
		}
		// A slot of which a part has moved answers for a lock by itself.
		alone := isApart(failure) && one.token == ""
		if isCrossSlot(failure) && len(one.members) > 1 {
			l.single.Store(false)
			alone, passing = true, true
		}
		if !passing || to == (route{}) && !alone {
			continue // until the watchdog tries again
		}
		r.mu.Lock()
		for _, m := range one.members {
			r.again = append(r.again, due{m, to, alone || to.asking})
		}
		r.mu.Unlock()
	}
}

// renewWithin is renewPipeline until ctx ends: go-redis hears of a deadline,
// but not of a cancellation, while it reads.
func (l *batcher) renewWithin(ctx context.Context, renewals []*renewal) (answers []*redis.Cmd, err error) {
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

// renewPipeline runs renewals in one pipeline, those again whose script the
// server does not know.
func (l *batcher) renewPipeline(ctx context.Context, renewals []*renewal) ([]*redis.Cmd, error) {
	cmds := make([]*redis.Cmd, len(renewals))
	all := make([]int, len(renewals))
	for i := range all {
		all[i] = i
	}
	unknown, err := l.renewOnce(ctx, renewals, all, false, cmds)
	if len(unknown) > 0 {
		_, err = l.renewOnce(ctx, renewals, unknown, true, cmds)
	}
	switch {
	case err == nil, isAnswer(err):
		return cmds, nil
	case errors.Is(err, errDial):
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
}

// renewOnce sends those of renewals, with the script if it is to teach it.
func (l *batcher) renewOnce(
	ctx context.Context, renewals []*renewal, those []int, teach bool, cmds []*redis.Cmd,
) (unknown []int, err error) {
	pipe := l.other.Pipeline()
	taught := map[*script]bool{}
	for _, i := range those {
		r := renewals[i]
		ask := func() {
			if r.asking {
				_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
			}
		}
		ask()
		if teach && !taught[r.script] { // the first teaches the server, the rest go by hash
			taught[r.script] = true
			cmds[i] = pipe.Eval(ctx, r.script.source, r.keys, r.args...)
		} else {
			cmds[i] = pipe.EvalSha(ctx, r.script.hash, r.keys, r.args...)
		}
		if r.token != "" { // where it is elsewhere the clock will have to do
			ask()
			pipe.PExpire(ctx, r.token, r.ttls[0]+tokenLimit)
		}
	}
	_, err = pipe.Exec(ctx)
	for _, i := range those {
		if failed := cmds[i].Err(); failed != nil && isUnknownScript(failed) {
			unknown = append(unknown, i)
		}
	}
	return unknown, err
}

// read gives each lease of r what the server answered for it. An error says
// that it answered for none.
func (r *renewal) read(sent driver.Instant, cmd *redis.Cmd, errs []error) error {
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
			errs[m] = driver.ErrLost
			r.leases[i].backend.subscriber.letGo(r.leases[i])
		}
	}
	return nil
}

var errClosed = errors.New("the backend is closed")
