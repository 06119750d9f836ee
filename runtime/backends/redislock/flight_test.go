package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Pipelines follow one another on few connections, to a server that now and then
// does not know a script or hangs up, while callers come, go and give up. Each call
// has its own answer, or an error; none has that of another.
func TestAnswersFindTheirCalls(t *testing.T) {
	t.Parallel()
	var asked, unknown, hungUp atomic.Int64
	addr := stub(t, func(args []string) string {
		if args[0] == "info" {
			return answerOf(wholeServer)
		}
		switch n := asked.Add(1); {
		case args[0] == "evalsha" && n%20 == 1:
			unknown.Add(1)
			return "-NOSCRIPT No matching script.\r\n"
		case n%100 == 0:
			hungUp.Add(1)
			return ""
		}
		if args[1] == togetherScript.hash || args[1] == togetherScript.source {
			ids := args[4:]
			return fmt.Sprintf("*%d\r\n:%s\r\n", len(ids), strings.Join(ids, "\r\n:"))
		}
		return ":" + args[3] + "\r\n"
	})
	client := redis.NewClient(singleOptions(&redis.Options{Addr: addr, ReadTimeout: soon}))
	defer client.Close()
	l := newLane(client, true)
	defer l.close()
	var answered, failed atomic.Int64
	var callers sync.WaitGroup
	for g := range 40 {
		callers.Go(func() {
			for i := range 200 {
				want := int64(g*1000 + i + 1)
				c := &call{request: request{script: releaseScript, args: [7]string{strconv.FormatInt(want, 10)}, nargs: 1}}
				if i%3 == 0 {
					c.script = acquireScript
				}
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				if i%10 == 9 {
					time.AfterFunc(time.Duration(rand.IntN(200))*time.Microsecond, cancel)
				}
				err := l.do(ctx, c)
				gaveUp := ctx.Err() != nil
				cancel()
				switch {
				case errors.Is(ctx.Err(), context.DeadlineExceeded):
					t.Errorf("call %d was forgotten: %v", want, err)
				case err == nil && c.reply.number != want:
					t.Errorf("a call for %d was answered %d", want, c.reply.number)
				case err == nil:
					answered.Add(1)
				case !errors.Is(err, errNoAnswer) && !errors.Is(err, errNotSent):
					t.Errorf("call %d: %v", want, err)
				case !gaveUp:
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	what := fmt.Sprintf("%d calls answered, %d failed, %d of unknown scripts; the server hung up %d times",
		answered.Load(), failed.Load(), unknown.Load(), hungUp.Load())
	if answered.Load() < 5000 || failed.Load() == 0 || unknown.Load() == 0 || hungUp.Load() == 0 {
		t.Error(what)
	}
	t.Log(what)
	// Who carried the last calls of others gives the link back after they have gone.
	eventually(t, soon, "all links are free and no call waits", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.free) == laneWidth && len(l.waiting) == 0
	})
}

// A call whose context has ended waits for no connection, not even for a moment: who
// releases a thousand locks under one context makes a thousand of them.
func TestEndedCallDoesNotQueue(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(singleOptions(&redis.Options{Addr: "127.0.0.1:0"}))
	defer client.Close()
	l := newLane(client, true)
	defer l.close()
	l.free = nil // all are in use
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := l.do(ctx, &call{request: request{script: releaseScript}})
	if !errors.Is(err, errNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if len(l.waiting) > 0 {
		t.Error("it has waited in line")
	}
}

// Nor does one whose context ends within a glance outlive it.
func TestShortCallDoesNotOutliveItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(singleOptions(&redis.Options{Addr: "127.0.0.1:0"}))
		defer client.Close()
		l := newLane(client, true)
		defer l.close()
		l.free = nil // all are in use
		const most = glance / 4
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		begin := time.Now()
		err := l.do(ctx, &call{request: request{script: releaseScript}})
		if took := time.Since(begin); took != most || !errors.Is(err, errNotSent) {
			t.Errorf("got %v after %v, want it after %v", err, took, most)
		}
		time.Sleep(glance) // for the beat that others may wait for
	})
}

// On a connection of its own, likewise.
func TestShortCallOnALink(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	addr := stub(t, func(args []string) string {
		if args[0] != "info" && args[0] != "ping" {
			<-silent
		}
		return answerOf(wholeServer)
	})
	client := redis.NewClient(singleOptions(&redis.Options{Addr: addr, ReadTimeout: soon}))
	defer client.Close()
	l := newLane(client, true)
	defer l.close()
	defer close(silent)
	for range 2 { // the second one dials anew
		const most = glance / 4
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		begin := time.Now()
		err := l.do(ctx, &call{request: request{script: releaseScript}})
		if took := time.Since(begin); took > glance/2+meter.Since(begin) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v after %v, want it after %v", err, took, most)
		}
	}
}

// Where an answer takes longer than a glance, callers that come and go keep their
// connections, and each has its answer.
func TestCallersFarAway(t *testing.T) {
	t.Parallel()
	_, p := proxied(t)
	var dialed atomic.Int64
	b := newTestBackend(t, p.Addr(), func(o *redis.Options) {
		o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return net.Dial(network, addr)
		}
	})
	p.Delay(faultproxy.Requests|faultproxy.Replies, glance)
	var callers sync.WaitGroup
	for range 8 {
		key := newKey(t)
		callers.Go(func() {
			for range 5 {
				time.Sleep(rand.N(2 * glance))
				a := &driver.Acquisition{Key: key, ID: newID(), TTL: 10 * time.Second, Tokens: 1}
				l, err := b.Acquire(t.Context(), a)
				if err != nil || a.MayHaveRun {
					t.Errorf("%v, Unanswered %t", err, a.MayHaveRun)
					return
				}
				time.Sleep(rand.N(2 * glance))
				freeLease(t, l)
			}
		})
	}
	callers.Wait()
	if n := dialed.Load(); n > laneWidth {
		t.Errorf("%d connections were made", n)
	}
}

// One pipeline goes behind another that has no answer yet; not behind one that asks
// replicas, nor to a server that takes no locks, nor on another connection.
func TestWhatFollows(t *testing.T) {
	t.Parallel()
	under := func(policy string) func([]string) string {
		return func(args []string) string {
			if args[0] == "info" {
				text := "maxmemory:1\r\nmaxmemory_policy:" + policy + "\r\n"
				return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
			}
			return freed
		}
	}
	evicting := linkTo(t, true, under("allkeys-lru"))
	ahead := evicting.send(calls3(), false)
	if len(ahead.calls) != 1 || evicting.follows(ahead, calls3()) {
		t.Errorf("%d of 3 calls were sent; only the release frees something, and nothing follows it", len(ahead.calls))
	}
	evicting.land(ahead)
	if evicting.conn != nil {
		t.Error("a server that takes no locks is not looked at anew")
	}

	s := linkTo(t, true, under("noeviction"))
	next := calls3()
	ahead = s.send(calls3()[1:2], false) // a release: the server was asked nothing
	if s.follows(ahead, next) {
		t.Error("a first acquire follows before the server was looked at")
	}
	s.land(ahead)
	ahead = s.send(calls3(), false)
	if !s.follows(ahead, next) || s.follows(ahead, nil) {
		t.Error("follows")
	}
	behind := s.send(next, true)
	first, second := ahead.calls, behind.calls
	s.land(ahead)
	s.land(behind)
	for _, c := range append(first, second...) {
		if c.err != nil || c.reply.number != 1 {
			t.Errorf("%v, %v", c.reply, c.err)
		}
	}
	replicated := calls3()
	for _, c := range replicated {
		c.copies.want = 1
	}
	ahead = s.send(replicated, false)
	if s.follows(ahead, next) {
		t.Error("calls follow those that ask replicas")
	}
	s.drop()
	if s.follows(ahead, next) {
		t.Error("calls follow on a connection that is gone")
	}
	s.land(ahead)
	for _, c := range replicated {
		wantIs(t, c.err, errNoAnswer)
	}
}
