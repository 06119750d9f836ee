package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// brief is the read timeout of clients whose server becomes silent. Before that, a busy server has to
// answer within it.
const brief = 250 * time.Millisecond

// acquires matches an acquire of key, and releases matches a release of key.
func acquires(key string) faultproxy.Match {
	return either(
		faultproxy.Command("evalsha", acquireScript.hash, key),
		faultproxy.Command("eval", acquireScript.source, key),
	)
}

func releases(key string) faultproxy.Match {
	return faultproxy.Command("evalsha", releaseScript.hash, key)
}

func renewals() faultproxy.Match {
	return faultproxy.Command("evalsha", renewScript.hash)
}

func either(a, b faultproxy.Match) faultproxy.Match {
	return func(request []byte) bool { return a(request) || b(request) }
}

// heldOnce checks that the lock has one holder, with a count of 1.
func heldOnce(t *testing.T, addr, key string) {
	t.Helper()
	fields := hash(t, addr, key)
	if len(fields) != 1 {
		t.Errorf("held: %v, want one field", fields)
	}
	for owner, count := range fields {
		if count != "1" {
			t.Errorf("%s holds it %s times", owner, count)
		}
	}
}

// S12: replies are lost after the acquire has run. After a success, one release frees the key. After
// an error, the key is free soon, long before the lease would end.
func TestLostRepliesToAcquire(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			server, p := proxied(t)
			l, key := newLocker(t, p.Addr()), newKey(t)
			warm(t, l)
			p.Swallow(n, acquires(key))
			begin := time.Now()
			_, held, err := l.Acquire(t.Context(), nil, key)
			slow := time.Since(begin) > resendLimit // then the acquire is not sent again
			if (err == nil) != (n <= len(resendAfter)) && (err == nil || !slow) {
				t.Errorf("err = %v after %d lost replies", err, n)
			}
			if err == nil {
				heldOnce(t, server, key)
				mustRelease(t, held)
				if exists(t, server, key) {
					t.Error("one release did not free the key")
				}
				return
			}
			wantIs(t, err, lock.ErrIndeterminate)
			eventually(t, soon, "the key is free", func() bool { return !exists(t, server, key) })
		})
	}
}

// S13: the server takes longer than the client's read timeout.
func TestServerSlowerThanReadTimeout(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--enable-debug-command", "yes")
	l, key := newLocker(t, server.Addr(), readTimeout(brief)), newKey(t)
	warm(t, l)
	asleep := make(chan error, 1)
	go func() {
		_, err := server.Command(context.Background(), "DEBUG", "SLEEP", "0.35")
		asleep <- err
	}()
	eventually(t, soon, "the server sleeps", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := server.Command(ctx, "PING")
		return err != nil
	})
	ctx, held := acquire(t, l, nil, key)
	if err := receive(t, "the end of the sleep", asleep); err != nil {
		t.Fatal(err)
	}
	heldOnce(t, server.Addr(), key)
	if err := lock.Check(ctx); err != nil {
		t.Error(err)
	}
	mustRelease(t, held)
	if exists(t, server.Addr(), key) {
		t.Error("one release did not free the key")
	}
}

// S14: the outcome stays unknown until the server can be reached again.
func TestUnknownOutcomeIsUndone(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	warm(t, l)
	p.Hole(faultproxy.Replies)
	err := refused(t, l, nil, key)
	wantIs(t, err, lock.ErrIndeterminate)
	wantIsNot(t, err, lock.ErrNotAcquired, lock.ErrUnavailable)
	p.Heal()
	eventually(t, soon, "the key is free", func() bool { return !exists(t, server, key) })
	_, held := acquire(t, newLocker(t, server), try(), key)
	mustRelease(t, held)
}

// S15: the undo runs before the acquire that it undoes.
func TestUndoOvertakesAcquire(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	p.Delay(faultproxy.Requests, promptLimit) // so that calls are not direct: they end with their contexts, and are not sent again
	warm(t, l)
	late := p.Late(acquires(key))
	undone := p.Late(releases(key))
	ctx, cancel := context.WithCancel(t.Context())
	got := start(ctx, l, nil, key)
	receive(t, "the acquire", late.Arrived())
	cancel()
	wantIs(t, receive(t, "the outcome", got).err, lock.ErrIndeterminate, context.Canceled)
	receive(t, "the undo", undone.Arrived())
	if err := undone.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := late.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(t, server, key) {
		t.Errorf("the late acquire took the lock: %v", hash(t, server, key))
	}
	_, held := acquire(t, newLocker(t, server), try(), key)
	mustRelease(t, held)
}

// S16: the first copy of an acquire arrives after the second copy was answered and the
// lock was released.
func TestDuplicateAcquireAfterRelease(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	warm(t, l)
	late := p.Late(acquires(key))
	_, held := acquire(t, l, nil, key)
	heldOnce(t, server, key)
	mustRelease(t, held)
	if err := late.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(t, server, key) {
		t.Errorf("the late duplicate took the lock: %v", hash(t, server, key))
	}
}

// A late copy of an acquire changes nothing while the acquisition has the lock.
func TestDuplicateAcquireWhileHeld(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	warm(t, l)
	late := p.Late(acquires(key))
	ctx, held := acquire(t, l, nil, key)
	before := reserved(t, server, key)
	if err := late.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	heldOnce(t, server, key)
	if after := reserved(t, server, key); after < before {
		t.Errorf("tokens up to %v are reserved, before the duplicate up to %v", after, before)
	}
	if err := lock.Check(ctx); err != nil {
		t.Error(err)
	}
	mustRelease(t, held)
	if exists(t, server, key) {
		t.Error("the lock was not released")
	}
}

// G2: a late copy of an acquire does not shorten a lease that was renewed for longer since. A lease that may
// be kept idle is renewed so.
func TestDuplicateAcquireShortensNoLease(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	b, key := newTestBackend(t, p.Addr(), readTimeout(brief)), newKey(t)
	warmBackend(t, b)
	late := p.Late(acquires(key))
	l, _ := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: long / 2, Tokens: 1})
	if err := l.Renew(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if err := late.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs := pttl(t, server, key) + time.Millisecond // PTTL leaves out the fraction of a millisecond
	if ours := l.Deadline().Left(); ours > theirs {
		t.Errorf("%v left by our deadline, %v at the server", ours, theirs)
	}
	freeLease(t, l)
}

// S17: the release ran and its replies were lost.
func TestLostRepliesToRelease(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 9; n += 2 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			server, p := proxied(t)
			l, key := newLocker(t, p.Addr()), newKey(t)
			warm(t, l) // a server that does not know the script answers before it has released
			ctx, held := acquire(t, l, nil, key)
			before := token(t, ctx)
			p.Swallow(n, releases(key))
			begin := time.Now()
			mustRelease(t, held)
			if took := time.Since(begin); took > 1200*time.Millisecond+meter.Since(begin) {
				t.Errorf("the release took %v", took)
			}
			if exists(t, server, key) {
				t.Error("the lock was not released")
			}
			ctx, held = acquire(t, l, nil, key)
			if after := token(t, ctx); after <= before {
				t.Errorf("token %d after %d", after, before)
			}
			mustRelease(t, held)
		})
	}
}

// The contract of a Backend: after an error that does not tell the outcome, Release is called
// again, and does not report that the lease was lost.
func TestReleaseIsCalledAgain(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	b, key := newTestBackend(t, p.Addr()), newKey(t)
	p.Delay(faultproxy.Requests, promptLimit) // so that the call is not direct, and ends with its context
	lease, first := grantOf(t, b, &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1})
	p.Hole(faultproxy.Replies)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	released := make(chan error, 1)
	go func() { released <- lease.Release(ctx, first) }()
	eventually(t, soon, "the release runs", func() bool { return !exists(t, server, key) })
	cancel()
	if err := receive(t, "the end of the call", released); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("without an answer: err = %v", err)
	}
	p.Heal()
	if err := lease.Release(t.Context(), first); err != nil {
		t.Errorf("the second call: err = %v", err)
	}
}

// After a lost reply to the acquire, Release still reports that the lock was lost.
func TestLossIsSeenAfterALostReplyToAcquire(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	warm(t, l)
	lost := p.Swallow(1, acquires(key))
	_, held := acquire(t, l, nil, key)
	receive(t, "a lost reply", lost)
	command(t, server, "DEL", key)
	wantIs(t, finish(held), lock.ErrLost)
}

// S18: a late release frees no later acquisition of the same client.
func TestStaleReleaseSparesTheNextHold(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	_, held := acquire(t, l, nil, key)
	stale := p.Late(releases(key))
	mustRelease(t, held) // the second attempt succeeds
	ctx, held := acquire(t, l, nil, key)
	want := hash(t, server, key)
	if err := stale.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := hash(t, server, key); len(want) != 1 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after the stale release %v, before %v", got, want)
	}
	if err := lock.Check(ctx); err != nil {
		t.Error(err)
	}
	mustRelease(t, held)
}

// S19: the release has no answer at all. The method's success is kept, the lease is not
// renewed any more, and it ends with its ttl.
func TestReleaseWithoutAnswer(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	const lease = 700 * time.Millisecond
	_, held := acquire(t, l, ttl(lease), key)
	p.Hole(faultproxy.Requests)
	begin := time.Now()
	mustRelease(t, held)
	if took := time.Since(begin); took > 1200*time.Millisecond+meter.Since(begin) {
		t.Errorf("the release took %v", took)
	}
	eventually(t, lease, "the lease ends", func() bool { return !exists(t, server, key) })
	p.Heal()
	p.Reset()
}

// S19: the release continues in the background, and is done as soon as the server can be reached.
func TestReleaseContinuesInTheBackground(t *testing.T) {
	t.Parallel()
	server, p := proxied(t)
	l, key := newLocker(t, p.Addr(), readTimeout(brief)), newKey(t)
	_, held := acquire(t, l, nil, key)
	p.Hole(faultproxy.Requests)
	mustRelease(t, held)
	if !exists(t, server, key) {
		t.Fatal("the proxy let the release through")
	}
	p.Heal()
	eventually(t, soon, "the key is free", func() bool { return !exists(t, server, key) })
}

// The first call on a connection asks for the eviction policy. If that answer is lost, the outcome
// of the acquire is still known: it was not sent.
func TestLostReplyToTheFirstCheck(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	l, key := newLocker(t, p.Addr()), newKey(t)
	p.Swallow(1, faultproxy.Command("info"))
	_, held := acquire(t, l, nil, key)
	mustRelease(t, held)

	unreached := newLocker(t, p.Addr(), readTimeout(50*time.Millisecond))
	p.Hole(faultproxy.Replies)
	err := refused(t, unreached, nil, key)
	if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate) {
		t.Errorf("err = %v, want ErrUnavailable: no acquire was sent", err)
	}
	p.Heal()
	p.Reset()
}
