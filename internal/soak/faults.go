package soak

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// kind is one sort of fault.
type kind struct {
	name        string
	class       history.Class
	weight      int
	least, most float64 // its length in TTLs
	strike      func(e *episode, f Planned, r *history.Fault)
}

var kinds []kind // set in init, because the functions of the faults use it

func init() {
	kinds = []kind{
		{"pause-client", history.Plain, 12, 0.5, 3, pauseClient},
		{"kill-client", history.Plain, 10, 0.1, 0.7, killClient},
		{"swallow-acquire", history.Plain, 8, 0.5, 1.5, swallowAcquires},
		{"swallow-release", history.Plain, 8, 0.5, 1.5, swallowReleases},
		{"swallow-any", history.Plain, 8, 0.5, 1.5, swallowAny},
		{"delay-replies", history.Plain, 8, 0.5, 3, delay(faultproxy.Replies)},
		{"delay-requests", history.Plain, 8, 0.5, 3, delay(faultproxy.Requests)},
		{"hole", history.Plain, 8, 0.3, 2, hole},
		{"reset", history.Plain, 6, 0, 0, reset},
		{"refuse", history.Plain, 5, 0.3, 1.5, refuse},
		{"late-acquire", history.Plain, 10, 0.5, 1.2, late},
		{"stop-server", history.Plain, 8, 0.3, 2, stopServer},
		{"restart-server", history.DataLoss, 6, 0, 0.3, restartServer},
		{"flush-all", history.DataLoss, 2, 0, 0, command("FLUSHALL")},
		{"script-flush", history.Plain, 6, 0, 0, repeated("SCRIPT", "FLUSH")},
		{"kill-pubsub", history.Plain, 8, 0, 0, repeated("CLIENT", "KILL", "TYPE", "pubsub")},
		{"kill-normal", history.Plain, 5, 0, 0, repeated("CLIENT", "KILL", "TYPE", "normal")},
		{"force-unlock", history.ForceFree, 5, 0, 0, forceUnlock},
		{"evict-token", history.Plain, 5, 0, 0, evictToken},
		{"client-pause", history.Plain, 5, 0.3, 1.5, clientPause},
	}
}

// strike makes f happen and records the time.
func (e *episode) strike(f Planned) {
	for _, k := range kinds {
		if k.name != f.Kind {
			continue
		}
		r := history.Fault{Kind: k.name, Class: k.class, Begin: history.Now()}
		k.strike(e, f, &r)
		r.End = history.Now()
		e.mu.Lock()
		e.faults = append(e.faults, r)
		e.mu.Unlock()
	}
}

func pauseClient(e *episode, f Planned, r *history.Fault) {
	c := e.current(f.Client)
	r.Proc = c.proc
	c.signal(syscall.SIGSTOP)
	time.Sleep(f.For)
	c.signal(syscall.SIGCONT)
}

func killClient(e *episode, f Planned, r *history.Fault) {
	c := e.current(f.Client)
	r.Proc = c.proc
	c.kill()
	time.Sleep(f.For)
	if err := e.spawn(f.Client); err != nil {
		r.Detail = err.Error()
		e.t.Errorf("respawn: %v", err)
	}
}

// The scripts are distinguished by their arguments: a release names the channel, an acquire only the
// queue, and a renewal neither.
var (
	channelWord = []byte("\r\nredisson_lock__channel:")
	queueWord   = []byte("\r\nlockgen:queue:")
)

// scripts matches calls of any script.
func scripts(request []byte) bool {
	return faultproxy.Command("evalsha")(request) || faultproxy.Command("eval")(request)
}

func acquires(request []byte) bool {
	return scripts(request) && bytes.Contains(request, queueWord) && !bytes.Contains(request, channelWord)
}

func releases(request []byte) bool {
	return scripts(request) && bytes.Contains(request, channelWord)
}

// while returns a match that stops matching when over is true, because a rule of the proxy
// can't be removed.
func while(over *atomic.Bool, match faultproxy.Match) faultproxy.Match {
	return func(request []byte) bool { return !over.Load() && match(request) }
}

func swallowAcquires(e *episode, f Planned, r *history.Fault) { swallow(e, f, r, acquires) }
func swallowReleases(e *episode, f Planned, r *history.Fault) { swallow(e, f, r, releases) }
func swallowAny(e *episode, f Planned, r *history.Fault)      { swallow(e, f, r, scripts) }

func swallow(e *episode, f Planned, r *history.Fault, match faultproxy.Match) {
	var over atomic.Bool
	done := e.proxies[f.Client].Swallow(f.N, while(&over, match))
	select {
	case <-done:
		r.Detail = fmt.Sprintf("%d replies", f.N)
	case <-time.After(f.For):
	}
	over.Store(true)
}

func delay(dir faultproxy.Direction) func(*episode, Planned, *history.Fault) {
	return func(e *episode, f Planned, r *history.Fault) {
		both := dir
		if f.Both && f.N == 1 {
			both = faultproxy.Requests | faultproxy.Replies
		}
		r.Detail = f.Delay.String()
		e.proxies[f.Client].Delay(both, f.Delay)
		time.Sleep(f.For)
		e.proxies[f.Client].Delay(both, 0)
		time.Sleep(f.Delay) // data that is on its way is still late
	}
}

// hole drops bytes. At its end it cuts the connections, as TCP would.
func hole(e *episode, f Planned, _ *history.Fault) {
	dir := faultproxy.Requests | faultproxy.Replies
	if !f.Both {
		dir = faultproxy.Direction(1 + f.N%2)
	}
	e.proxies[f.Client].Hole(dir)
	time.Sleep(f.For)
	e.proxies[f.Client].Heal()
	e.proxies[f.Client].Reset()
}

func reset(e *episode, f Planned, _ *history.Fault) {
	for range f.N {
		e.proxies[f.Client].Reset()
		time.Sleep(f.Delay / 4)
	}
}

func refuse(e *episode, f Planned, _ *history.Fault) {
	e.proxies[f.Client].Refuse()
	e.proxies[f.Client].Reset()
	time.Sleep(f.For)
	e.accept(f.Client)
}

// accept ends refuse. The port may be busy for a moment, because a client that was just
// forked shares our sockets until it has executed its program.
func (e *episode) accept(i int) {
	for range 100 {
		e.proxies[i].Accept()
		if e.scopes[i].taken() == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	e.t.Errorf("the proxy of client %d can't listen again", i)
}

// late holds back an acquire. Its caller may give up in the meantime.
func late(e *episode, f Planned, r *history.Fault) {
	var over atomic.Bool
	held := e.proxies[f.Client].Late(while(&over, acquires))
	select {
	case <-held.Arrived():
		time.Sleep(f.Delay)
	case <-time.After(f.For):
		over.Store(true)
		r.Detail = "no acquire came"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	select {
	case <-held.Arrived():
		if err := held.Deliver(ctx); err != nil {
			r.Detail = err.Error()
		}
	default:
	}
}

func stopServer(e *episode, f Planned, _ *history.Fault) {
	e.testbed.mu.Lock()
	defer e.testbed.mu.Unlock()
	e.testbed.server.Stop()
	time.Sleep(f.For)
	e.testbed.server.Cont()
}

func restartServer(e *episode, f Planned, _ *history.Fault) {
	e.testbed.mu.Lock()
	defer e.testbed.mu.Unlock()
	e.testbed.server.Kill()
	time.Sleep(f.For)
	e.testbed.server.Restart()
}

// send sends one command to the server, without a proxy.
func (e *episode) send(r *history.Fault, args ...string) {
	if _, err := e.testbed.server.Command(e.t.ctx, args...); err != nil {
		r.Detail = err.Error()
	}
}

func command(args ...string) func(*episode, Planned, *history.Fault) {
	return func(e *episode, _ Planned, r *history.Fault) { e.send(r, args...) }
}

func repeated(args ...string) func(*episode, Planned, *history.Fault) {
	return func(e *episode, f Planned, r *history.Fault) {
		for range 2 * f.N {
			e.send(r, args...)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func forceUnlock(e *episode, f Planned, r *history.Fault) {
	r.Key = f.Key
	e.send(r, "DEL", f.Key)
}

func evictToken(e *episode, f Planned, r *history.Fault) {
	r.Key = f.Key
	for range 2 * f.N {
		e.send(r, "DEL", "lockgen:token:{"+f.Key+"}")
		time.Sleep(20 * time.Millisecond)
	}
}

func clientPause(e *episode, f Planned, r *history.Fault) {
	mode := "WRITE"
	if f.Both {
		mode = "ALL"
	}
	e.send(r, "CLIENT", "PAUSE", strconv.FormatInt(f.For.Milliseconds(), 10), mode)
	time.Sleep(f.For)
}
