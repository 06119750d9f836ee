package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// kind is one sort of fault.
type kind struct {
	name        string
	class       history.Class
	weight      int
	least, most float64           // its length in TTLs
	happens     func(string) bool // whether it can happen at the engine of this name
	strike      func(e *episode, f Fault, r *history.Fault)
}

var kinds []kind // set in init, because the functions of the faults use it

func anywhere(string) bool           { return true }
func networked(engine string) bool   { return engine != "memory" && engine != "locktest" }
func served(engine string) bool      { return engine != "memory" }
func wallClocked(engine string) bool { return engine == "redis" || engine == "row" }
func onRedis(engine string) bool     { return engine == "redis" || hasSeveral(engine) }

// one restricts happens to engines with one server. No Backend made of several promises to withstand the fault.
func one(happens func(string) bool) func(string) bool {
	return func(engine string) bool { return !hasSeveral(engine) && happens(engine) }
}

func init() {
	kinds = []kind{
		// Processes.
		{"pause-client", history.Plain, 12, 0.5, 3, networked, pauseClient},
		{"stall-clients", history.Plain, 6, 0.3, 2, anywhere, stallClients},
		{"kill-client", history.Plain, 10, 0.1, 0.7, networked, killClient(false)},
		{"kill-host", history.Plain, 6, 0.1, 0.7, networked, killClient(true)},
		{"close-client", history.Plain, 6, 0, 0.5, anywhere, closeClient},
		// The network.
		{"delay-replies", history.Plain, 8, 0.5, 3, networked, delay(vnet.Replies)},
		{"delay-requests", history.Plain, 8, 0.5, 3, networked, delay(vnet.Requests)},
		{"hole", history.Plain, 8, 0.3, 2, networked, hole},
		{"reset", history.Plain, 6, 0, 0, networked, reset},
		{"refuse", history.Plain, 5, 0.3, 1.5, networked, refuse},
		{"lose-acquire", history.Plain, 6, 0.5, 1.5, onRedis, requests(loseReply, isAcquire)},
		{"lose-release", history.Plain, 6, 0.5, 1.5, onRedis, requests(loseReply, isRelease)},
		{"lose-any", history.Plain, 6, 0.5, 1.5, onRedis, requests(loseReply, isScript)},
		{"cut-behind", history.Plain, 8, 0.5, 1.5, onRedis, requests(cutBehind, isScript)},
		{"cut-before", history.Plain, 4, 0.5, 1.5, onRedis, requests(cutBefore, isScript)},
		{"late-acquire", history.Plain, 10, 0.5, 1.2, onRedis, requests(arriveLate, isAcquire)},
		{"late-any", history.Plain, 5, 0.5, 1.2, onRedis, requests(arriveLate, isScript)},
		{"twice", history.Plain, 6, 0.5, 1.5, onRedis, requests(arriveTwice, isScript)},
		// The server.
		{"stop-server", history.Plain, 8, 0.3, 2, served, stopServer},
		{"restart-server", history.Plain, 5, 0.1, 0.5, served, restartServer(false)},
		{"empty-server", history.DataLoss, 5, 0.1, 0.5, one(networked), restartServer(true)},
		{"empty-members", history.Plain, 25, 0.1, 0.5, isQuorum, emptyMembers},
		{"cut-members", history.Plain, 15, 0.3, 3, hasSeveral, cutMembers},
		{"leave-engine", history.Plain, 40, 0, 0, isFailover, alone(leaveEngine)},
		{"differ", history.Plain, 15, 0, 0, isFailover, alone(differ)},
		{"lose-record", history.Plain, 20, 0.1, 2, isFailover, loseRecord},
		{"switch-by-hand", history.Plain, 25, 0, 0, isFailover, switchByHand},
		{"blind", history.Plain, 15, 0, 0, isFailover, blind},
		{"new-version", history.Plain, 60, 0, 0, isSharded, newVersion},
		{"empty-member", history.Plain, 30, 0, 2, isSharded, emptyMember},
		{"set-back", history.Plain, 0, 0, 0, onlyVaried, setBack},
		{"clock-forward", history.DataLoss, 4, 0, 0, wallClocked, jump(1)},
		{"clock-back", history.ClockBack, 4, 0, 0, wallClocked, jump(-1)},
		{"force-unlock", history.ForceFree, 5, 0, 0, one(served), forceUnlock},
		{"flush-all", history.DataLoss, 2, 0, 0, one(onRedis), command("FLUSHALL")},
		{"script-flush", history.Plain, 6, 0, 0, onRedis, command("SCRIPT", "FLUSH")},
		{"evict-token", history.Plain, 4, 0, 0, onRedis, evict("lockgen:token:")},
		{"evict-queue", history.DataLoss, 3, 0, 0, one(onRedis), evict("lockgen:queue:")},
		{"kill-pubsub", history.Plain, 8, 0, 0, onRedis, killPubSub},
		{"no-memory", history.Plain, 6, 0.3, 1.5, onRedis, noMemory},
		{"no-right", history.Plain, 8, 0.3, 1.5, onRedis, noRight},
		{"loading", history.Plain, 4, 0.2, 1, onRedis, refusal("LOADING Redis is loading the dataset in memory")},
		{"read-only", history.Plain, 4, 0.2, 1, onRedis, refusal("READONLY You can't write against a read only replica.")},
	}
}

// kindsOf returns the kinds with these names, or all kinds, that can happen at an engine.
func kindsOf(engine string, names []string) (some []kind) {
	for _, k := range kinds {
		if len(names) > 0 && !slices.Contains(names, k.name) {
			continue
		}
		if k.happens(engine) {
			some = append(some, k)
		}
	}
	return some
}

// checkKinds returns an error if one of names is not a fault.
func checkKinds(names []string) error {
	var known []string
	for _, k := range kinds {
		known = append(known, k.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no fault %q; there is %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// strike makes f happen and records the time.
func (e *episode) strike(f Fault) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == f.Kind })
	r := history.Fault{Kind: f.Kind, Class: kinds[i].class, Begin: clock()}
	e.mu.Lock()
	at := len(e.faults)
	e.faults = append(e.faults, r)
	e.mu.Unlock()
	kinds[i].strike(e, f, &r)
	if isFailover(e.plan.Engine) && r.Resumes == 0 {
		e.engine.(*several).opened()
	}
	r.End = clock()
	e.mu.Lock()
	e.faults[at] = r
	e.mu.Unlock()
}

func pauseClient(e *episode, f Fault, r *history.Fault) {
	p := e.current(f.Process)
	r.Proc = p.number
	p.pause()
	time.Sleep(f.For)
	p.resume()
}

// stallClients lets no goroutine run and no timer fire for a while, so all processes are late. The
// server's clock continues.
func stallClients(_ *episode, f Fault, _ *history.Fault) { Stall(f.For) }

func killClient(host bool) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, r *history.Fault) {
		p := e.current(f.Process)
		r.Proc, r.Kind = p.number, "kill-client"
		go p.kill(host)
		time.Sleep(f.For)
		e.spawn(f.Process)
	}
}

// closeClient closes a Locker while it is in use, often with too little time.
func closeClient(e *episode, f Fault, r *history.Fault) {
	p := e.current(f.Process)
	r.Proc = p.number
	limit := f.For
	if f.Both {
		limit = 3 * time.Second
	}
	go p.close(e, limit)
	time.Sleep(f.Delay)
	e.spawn(f.Process)
}

func delay(dir vnet.Direction) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, r *history.Fault) {
		both := dir
		if f.Both && f.N == 1 {
			both = vnet.Both
		}
		r.Detail = f.Delay.String()
		path := e.current(f.Process).path
		path.Delay(both, f.Delay)
		time.Sleep(f.For)
		path.Delay(both, 0)
		time.Sleep(f.Delay) // messages that are on their way are still late
	}
}

// hole holds messages back. At its end they arrive, or the connections are cut.
func hole(e *episode, f Fault, _ *history.Fault) {
	dir := vnet.Both
	if !f.Both {
		dir = vnet.Direction(1 + f.N%2)
	}
	path := e.current(f.Process).path
	path.Hole(dir)
	time.Sleep(f.For)
	if f.N < 4 {
		path.Reset()
	}
	path.Heal()
}

func reset(e *episode, f Fault, _ *history.Fault) {
	for range f.N {
		e.current(f.Process).path.Reset()
		time.Sleep(f.Delay / 4)
	}
}

func refuse(e *episode, f Fault, _ *history.Fault) {
	path := e.current(f.Process).path
	path.Refuse()
	path.Reset()
	time.Sleep(f.For)
	path.Heal()
}

// requests returns a fault that applies act to some of the next requests that match.
func requests(act action, match func([]byte) bool) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, r *history.Fault) {
		rule := &rule{number: e.current(f.Process).number, match: match, left: f.N, action: act}
		switch act {
		case arriveLate:
			rule.delay = f.For
		case cutBehind:
			rule.delay = f.Delay / 50
		}
		end := e.server(f).strike(rule)
		time.Sleep(f.For)
		end()
		r.Detail = fmt.Sprintf("%d requests", f.N-rule.left)
		switch act {
		case arriveLate:
			time.Sleep(rule.delay)
		case loseReply: // a client waits for its answer
			time.Sleep(e.plan.Processes[f.Process].ReadTimeout)
		}
	}
}

// The scripts are distinguished by their arguments: a release names the channel, an acquire only the
// queue, and a renewal neither.
var (
	channelWord = []byte("\r\nredisson_lock__channel:")
	queueWord   = []byte("\r\nlockgen:queue:")
)

func isScript(request []byte) bool { return bytes.Contains(request, []byte("\r\neval")) }

func isAcquire(request []byte) bool {
	return isScript(request) && bytes.Contains(request, queueWord) && !bytes.Contains(request, channelWord)
}

func isRelease(request []byte) bool {
	return isScript(request) && bytes.Contains(request, channelWord)
}

func stopServer(e *episode, f Fault, _ *history.Fault) {
	server := e.struck(f)
	server.Pause()
	time.Sleep(f.For)
	server.Resume()
}

func restartServer(empty bool) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, _ *history.Fault) {
		server := e.struck(f)
		server.Stop()
		time.Sleep(f.For)
		server.Start(empty)
		if isQuorum(e.plan.Engine) {
			time.Sleep(untilItVotes)
		}
	}
}

// jump returns a fault that sets the clock forward or back by up to 1.2 TTLs.
func jump(sign time.Duration) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, r *history.Fault) {
		d := sign * f.Delay * time.Duration(f.N) / 5
		r.Detail = d.String()
		e.engine.Jump(d)
		if d > 0 {
			// A queue entry from before the jump is granted by the clock after it, until its
			// process asks again, which takes a second and the time for an answer.
			time.Sleep(1500 * time.Millisecond)
		}
	}
}

func forceUnlock(e *episode, f Fault, r *history.Fault) {
	r.Key = f.Key
	e.engine.Free(f.Key)
}

func command(words ...string) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, _ *history.Fault) {
		_, _ = e.server(f).Do(words...)
	}
}

func evict(prefix string) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, _ *history.Fault) { e.server(f).Evict(prefix) }
}

func killPubSub(e *episode, f Fault, _ *history.Fault) {
	e.server(f).cut((*conn).isSubscribed)
}

func noMemory(e *episode, f Fault, _ *history.Fault) {
	r := e.server(f)
	r.set(func() { r.outOf = true })
	time.Sleep(f.For)
	r.set(func() { r.outOf = false })
}

// noRight takes a right from the user that a lock needs, or one that is optional. It never takes the
// right to delete, because then no lock would be released, and offers to waiters would stay.
func noRight(e *episode, f Fault, r *history.Fault) {
	rights := [][]string{
		{"PEXPIRE"}, {"PUBLISH"}, {"HSET"}, {"SET"}, {"ZADD"}, {"PUBSUB"}, {"HKEYS"}, {"GET"}, {"SUBSCRIBE"}, {"EVALSHA", "EVAL"}, {"INFO"},
	}
	lost := rights[(f.N+int(f.Delay))%len(rights)]
	r.Detail = strings.Join(lost, " ")
	server := e.server(f)
	deny := func(denied bool) {
		server.set(func() {
			for _, cmd := range lost {
				server.denied[cmd] = denied
			}
		})
	}
	deny(true)
	time.Sleep(f.For)
	deny(false)
}

func refusal(text string) func(*episode, Fault, *history.Fault) {
	return func(e *episode, f Fault, _ *history.Fault) {
		r := e.server(f)
		r.set(func() { r.refusal = text })
		time.Sleep(f.For)
		r.set(func() { r.refusal = "" })
	}
}

// set changes how the server treats commands.
func (r *Redis) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}
