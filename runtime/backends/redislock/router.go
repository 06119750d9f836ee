package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// router finds the batcher to the server that owns a key.
type router struct {
	life      *engine.Life
	client    redis.UniversalClient
	failsOver bool                 // another server takes over where one fails: behind a Sentinel, or in a Cluster
	node      redis.ClusterOptions // the timeouts for a node's calls

	hooks         []redis.Hook  // of the caller's client
	allowEviction bool          // servers that may evict locks are used too
	onReload      func()        // called when servers may have changed places
	directLimit   time.Duration // the constant; a test on a busy machine has more

	slotsLookup engine.SingleFlight // the attempt to read the map of slots
	slotsKnown  atomic.Bool         // the map was read: master asks no node any more

	mu       sync.Mutex
	batchers map[batcherKey]*batcher
	outage   outage // of the map
}

// batcherKey says which calls a batcher is for.
type batcherKey struct {
	addr     string // in a Cluster
	replicas bool   // its calls wait for replicas; other calls must not wait with them
}

// route is where a server sent a call that it did not take; the zero route
// leads to the server that owns the key as far as we know.
type route struct {
	addr   string
	asking bool // only this call goes there: the slot is moving
}

// failoverTimeout is how long a server may be silent. Then we look whether another has
// taken its place, and send a call again that may be sent twice.
const failoverTimeout = 500 * time.Millisecond

// replaceAfter is the least age of a batcher that is replaced, so that few are open at a time if a
// server refuses each call.
const replaceAfter = time.Second

// drainLimit is how long a batcher that is replaced may finish what it has under way.
const drainLimit = 5 * time.Second

// idleLimit is how long a batcher of a Cluster is kept when nobody uses it: as long as go-redis
// keeps a connection. It is closed when another is made.
const idleLimit = 30 * time.Minute

// sentinelAddr is what go-redis has as the address of a server that a Sentinel names.
const sentinelAddr = "FailoverClient"

func (r *router) cluster() *redis.ClusterClient {
	cluster, _ := r.client.(*redis.ClusterClient)
	return cluster
}

// batcherFor returns the batcher to the server that owns key, or to where a server sent
// the call. replicas is set for calls that wait for replicas.
func (r *router) batcherFor(ctx context.Context, key string, to route, replicas bool) (*batcher, error) {
	if r.life.Closed() {
		return nil, driver.ErrClosed
	}
	client, addr, err := r.clientFor(ctx, key)
	if err != nil {
		return nil, err
	}
	if to.addr != "" && addr != "" {
		addr = to.addr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := batcherKey{addr, replicas}
	b := r.batchers[at]
	if b == nil {
		if r.batchers == nil {
			r.batchers = map[batcherKey]*batcher{}
		}
		b = newBatcher(r.optionsAt(client, addr), !r.allowEviction)
		b.bySlot, b.directLimit = addr != "", r.directLimit
		b.hook(r.hooks)
		r.batchers[at] = b
		defer r.closeIdleLocked()
	}
	if addr != "" {
		b.used = time.Now()
	}
	return b, nil
}

// closeIdleLocked closes unused batchers, such as those to nodes that a Cluster no longer has.
func (r *router) closeIdleLocked() {
	for at, b := range r.batchers {
		if at.addr != "" && time.Since(b.used) >= idleLimit {
			delete(r.batchers, at)
			r.life.Go(func(context.Context) { _ = b.close() })
		}
	}
}

// clientFor returns go-redis's client of the server that owns key as far as we know
// and, in a Cluster, its address.
func (r *router) clientFor(ctx context.Context, key string) (client *redis.Client, addr string, err error) {
	if client, ok := r.client.(*redis.Client); ok {
		return client, "", nil
	}
	if client, err = r.master(ctx, key); err != nil {
		return nil, "", err
	}
	return client, client.Options().Addr, nil
}

// optionsAt returns the options of a client of ours for the Cluster's node at addr. They
// are made from those of like, go-redis's client of any node; without a Cluster, of the server.
func (r *router) optionsAt(like *redis.Client, addr string) redis.Options {
	o := *like.Options()
	if addr != "" {
		o.Addr, o.NodeAddress = addr, ""
		o.DialTimeout, o.ReadTimeout = r.node.DialTimeout, r.node.ReadTimeout
	}
	return *lockOptions(&o, 0)
}

// master returns go-redis's client of the master of key's slot. It does I/O
// only before there is a map of slots, and then not for longer than ctx: go-redis asks one
// node after the other for it, each until it times out, whatever becomes of the caller.
func (r *router) master(ctx context.Context, key string) (client *redis.Client, err error) {
	if !r.slotsKnown.Load() {
		err = r.slotsLookup.Do(ctx, r.life, func(context.Context) error {
			_, err := r.cluster().MasterForKey(context.Background(), key)
			r.slotsKnown.Store(err == nil)
			return err
		})
	}
	if err == nil {
		client, err = r.cluster().MasterForKey(ctx, key)
	}
	if err != nil && !errors.Is(err, driver.ErrClosed) { // for example, nobody owns the slot
		err = fmt.Errorf("%w: %w", errNotSent, err)
	}
	return client, err
}

func (r *router) close() error {
	r.mu.Lock()
	var err error
	for _, b := range r.batchers {
		err = errors.Join(err, b.close())
	}
	r.mu.Unlock()
	return err
}

// transient reports whether err, which a call to b ended with, is about a state that passes
// soon (a failover, a slot on its way, a server that is starting), and where to send the
// call then. It has the servers' roles looked up again, in the background.
func (r *router) transient(err error, b *batcher) (to route, transient bool) {
	if !isAnswer(err) {
		if !errors.Is(err, errNotSent) && !errors.Is(err, errNoAnswer) {
			return route{}, false // the server is unfit
		}
		r.reload()
		gone := errors.Is(err, errNotSent) && r.failsOver && !errors.Is(err, redis.ErrClosed)
		return route{}, gone || errors.Is(err, errNoAnswer) || errors.Is(err, errNoHandshake)
	}
	text := err.Error()
	if moved, ok := strings.CutPrefix(text, "MOVED "); ok {
		r.reload()
		return route{addr: target(moved)}, true
	}
	if ask, ok := strings.CutPrefix(text, "ASK "); ok {
		addr := target(ask)
		return route{addr: addr, asking: addr != ""}, true
	}
	for _, state := range []string{"TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "LOADING "} {
		if strings.Contains(text, state) {
			r.reload()
			if state == "READONLY " {
				r.replace(b)
			}
			return route{}, true
		}
	}
	return route{}, false
}

// replace makes room for a new batcher in place of b, whose connections lead to a server that
// is a replica now. go-redis keeps a connection if it had the answer READONLY in a pipeline.
func (r *router) replace(b *batcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, one := range r.batchers {
		if one == b && time.Since(b.created) >= replaceAfter && r.life.Go(func(ctx context.Context) { engine.Pause(ctx, drainLimit); _ = b.close() }) {
			delete(r.batchers, at)
		}
	}
}

// reload has the servers' roles looked up again, and the subscriber told. It does not wait.
func (r *router) reload() {
	r.refresh()
	r.onReload()
}

func (r *router) refresh() {
	if cluster := r.cluster(); cluster != nil {
		cluster.ReloadState(context.Background())
	}
}

// target returns the address in "<slot> <host>:<port>", or "" if it does not
// say which host, as a server may that does not know.
func target(redirection string) string {
	_, addr, _ := strings.Cut(redirection, " ")
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" || host == "?" {
		return ""
	}
	return addr
}

// outageLimit is how long calls that wait for a lock wait, all together, for a
// server to take the place of one that is gone: some seconds more than that takes
// if a node is given up after 5 s.
const outageLimit = 10 * time.Second

// resendLimit is for a server that no other replaces. A call is sent to it a third time only if
// it has taken less: all attempts together do, if the server at least refuses them.
const resendLimit = 1500 * time.Millisecond

// resendAfter is when a call without an answer is sent again. Each resend is
// idempotent; after the last the outcome is unknown.
var resendAfter = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// outage is a time in which a server takes no calls.
type outage struct{ begun, seen time.Time }

// resends reports whether a call that was first sent then is sent again after this
// attempt, whether or not its caller may wait. No other server takes the place of one by itself: if
// it is silent, a second attempt finds out whether it was the connection that was
// dead, and further ones would each take as long as the client's timeouts.
func (r *router) resends(attempt int, first time.Time) bool {
	return attempt == 0 || attempt < len(resendAfter) && (r.failsOver || time.Since(first) < resendLimit)
}

// mayStillWait reports whether a call that b could not do since then may go on trying:
// neither it nor the outage has lasted outageLimit. Without the bound on the outage, those
// who wait in line would try one after the other, for a server that is gone for good. A nil
// b is for calls that no batcher was found for.
func (r *router) mayStillWait(b *batcher, since time.Time) bool {
	if !r.failsOver {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.outage
	if b != nil {
		o = &b.outage
		b.inOutage.Store(true)
	}
	now := time.Now()
	if now.Sub(o.seen) > outageLimit { // it is a new outage
		o.begun = now
	}
	o.seen = now
	return now.Sub(o.begun) < outageLimit && now.Sub(since) < outageLimit
}

// recovered notes that b does calls again.
func (r *router) recovered(b *batcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.inOutage.Store(false)
	b.outage, r.outage = outage{}, outage{}
}

// withFailoverTimeout returns a context for an attempt to do c. Where another server may take
// over from a silent one, it ends after limit, except for a renewal, whose late answer
// counts too; and the servers' roles are looked up again before that.
func (r *router) withFailoverTimeout(ctx context.Context, c *call, limit time.Duration) (_ context.Context, stop func()) {
	if !r.failsOver {
		return ctx, func() {}
	}
	reload := time.AfterFunc(failoverTimeout/2, r.reload)
	cancel := func() {}
	if !c.renews {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	return ctx, func() {
		reload.Stop()
		cancel()
	}
}
