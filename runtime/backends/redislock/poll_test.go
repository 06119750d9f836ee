package redislock

import (
	"context"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
)

// S48: a waiter without a subscription tries about once a second, with jitter, whether the server
// refuses the subscription or does not answer.
func TestPollsOnceASecondWithoutASubscription(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"denied", "silent"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			rights := documentedRights(t)
			if how == "denied" {
				rights = append(rights, "-subscribe")
			}
			server, login := serverWithUser(t, rights...)
			p := faultproxy.New(t, server.Addr())
			key := "seckill:lock"
			one, two := newLocker(t, server.Addr(), login), newLocker(t, p.Addr(), login)
			_, held := acquire(t, one, nil, key)
			if how == "silent" {
				silent(p)
			}
			const seconds = 8
			ctx, cancel := context.WithTimeout(t.Context(), (seconds*1000+500)*time.Millisecond)
			defer cancel()
			waiting := start(ctx, two, nil, key)
			queued(t, server.Addr(), key, 1)
			p.ResetCounts()
			begin := time.Now()
			time.Sleep(seconds * time.Second)
			counts := p.Counts()
			t.Logf("sent in %d s: %v", seconds, counts)
			least := int((seconds*time.Second - meter.Since(begin)) / time.Second)
			if n := counts["EVALSHA"]; n < least-1 || n > seconds+2 {
				t.Errorf("tried %d times in %d s", n, seconds)
			}
			receive(t, "an answer", waiting)
			mustRelease(t, held)
		})
	}
}

// silent makes the server not answer the next subscriptions.
func silent(p *faultproxy.Proxy) {
	for range 20 {
		p.Late(faultproxy.Command("subscribe"))
	}
}

// A subscription that is not confirmed keeps no call from trying again when the
// holder's lease ends.
func TestLeaseEndsBeforeTheSubscriptionStands(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	warm(t, l)
	silent(p)
	command(t, server, "HSET", key, redissonOwner, "1")
	command(t, server, "PEXPIRE", key, "300")
	begin := time.Now()
	_, held := acquire(t, l, nil, key)
	if took := time.Since(begin); took > 500*time.Millisecond+meter.Since(begin) {
		t.Errorf("acquired after %v", took)
	}
	mustRelease(t, held)
	p.Reset()
}
