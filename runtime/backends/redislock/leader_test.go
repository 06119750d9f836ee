//go:build unix

package redislock

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// leaderTerm is a term of a leader in this process.
type leaderTerm struct {
	ctx   context.Context
	token uint64
	at    time.Time
}

// leads makes l campaign for key. Each term is sent to the channel terms, and lasts until it is
// lost or ctx ends.
func leads(t *testing.T, ctx context.Context, l *lock.Locker, p *lock.Policy, key string) (terms chan leaderTerm, ended chan error) {
	t.Helper()
	terms, ended = make(chan leaderTerm, 8), make(chan error, 1)
	go func() {
		ended <- l.Lead(ctx, p, key, func(term context.Context) error {
			begun := time.Now()
			n, _ := lock.Token(term)
			terms <- leaderTerm{term, n, begun}
			<-term.Done()
			return context.Cause(term)
		})
	}()
	return terms, ended
}

// S1: once another leads, a leader whose process was stopped does not say any more that it leads,
// also after it continues.
func TestLeaderIsStopped(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	p := startPeer(t, server.Addr())
	const lease = 800 * time.Millisecond
	before, _ := strconv.ParseUint(p.must("lead leader %v", lease)[0], 10, 64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	policy := &lock.Policy{Leader: true, TTL: lease}
	terms, ended := leads(t, ctx, newLocker(t, server.Addr()), policy, "leader")
	queuedInRecord(t, server.Addr(), "leader")

	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := receive(t, "the leader after the one that was stopped", terms)
	if took := next.at.Sub(begin); took > 2*time.Second+meter.Since(begin) {
		t.Errorf("the next leader took over after %v, with a lease of %v", took, lease)
	}
	if next.token <= before {
		t.Errorf("token %d after %d", next.token, before)
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	last, _ := strconv.ParseInt(p.must("led")[0], 10, 64)
	if said := time.Unix(0, last); said.After(next.at) {
		t.Errorf("the leader that was stopped said that it leads, %v after the next term began", said.Sub(next.at))
	}
	if err := lock.Check(next.ctx); err != nil {
		t.Errorf("the next leader: %v", err)
	}
	cancel()
	wantIs(t, receive(t, "the end of the campaign", ended), context.Canceled)
	nobodyInRecord(t, server.Addr(), "leader")
}

// S29: the server forgets everything. The leader and the candidates learn of it, one of them leads
// with a larger token, and no old candidacy is left.
func TestLeaderOfAnEmptiedServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	policy := &lock.Policy{Leader: true, TTL: 1500 * time.Millisecond}
	first, firstEnded := leads(t, ctx, newLocker(t, server.Addr()), policy, "leader")
	old := receive(t, "the leader", first)
	second, secondEnded := leads(t, ctx, newLocker(t, server.Addr()), policy, "leader")
	queuedInRecord(t, server.Addr(), "leader")

	command(t, server.Addr(), "FLUSHALL")
	receive(t, "the loss", old.ctx.Done())
	wantIs(t, context.Cause(old.ctx), lock.ErrLost)
	now, other := leaderTerm{}, first
	select {
	case now = <-second:
	case now = <-first:
		other = second
	case <-time.After(soon):
		t.Fatal("nobody leads")
	}
	if now.token <= old.token {
		t.Errorf("token %d after %d", now.token, old.token)
	}
	time.Sleep(policy.TTL) // after this time the other one would take over a term that was not renewed
	if err := lock.Check(now.ctx); err != nil || len(other) > 0 {
		t.Errorf("the new leader: %v; %d others lead", err, len(other))
	}
	cancel()
	wantIs(t, receive(t, "the end of a campaign", firstEnded), context.Canceled)
	wantIs(t, receive(t, "the end of a campaign", secondEnded), context.Canceled)
	nobodyInRecord(t, server.Addr(), "leader")
}

// queuedInRecord waits until a process waits in key's record.
func queuedInRecord(t *testing.T, addr, key string) {
	t.Helper()
	eventually(t, soon, "a candidate waits", func() bool { return inRecord(t, addr, key, `"queue":`) })
}

// nobodyInRecord waits until key's record has no holder and no waiter.
func nobodyInRecord(t *testing.T, addr, key string) {
	t.Helper()
	eventually(t, soon, "nobody is left", func() bool { return !inRecord(t, addr, key, `"queue":`) && !inRecord(t, addr, key, `"in":`) })
}

func inRecord(t *testing.T, addr, key, what string) bool {
	t.Helper()
	record, _ := command(t, addr, "GET", key).(string)
	return strings.Contains(record, what)
}
