package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lanes finds the lane to the server that owns a key.
type lanes struct {
	own   redis.UniversalClient
	wires *wires
	roams bool                 // another server may take the place of one that is gone
	node  redis.ClusterOptions // the timeouts for a node's calls

	evicting bool          // servers that may evict locks will do
	idle     time.Duration // how long a lane to a server that is no master any more may be of use
	moving   func()        // is told when servers may have changed places

	mu      sync.Mutex
	all     map[place]*lane
	clients map[string]*redis.Client // by address, in a Cluster: go-redis closes its own as it likes
	mapped  bool                     // there is a map of slots: to find a master asks nobody any more
	mapping *mapping                 // the attempt to get one that is under way
	outage  outage                   // of the map
	sweeper *time.Timer              // set while there may be lanes to close
	closed  bool
	work    sync.WaitGroup
}

// place is what a lane is for.
type place struct {
	addr   string // in a Cluster
	copied bool   // its calls wait for replicas; those that do not are not to wait for them
}

// mapping is one attempt to read the map of slots.
type mapping struct {
	done chan struct{}
	err  error
}

// route is where a server sent a call that it did not take; the zero route
// leads to the server that owns the key as far as we know.
type route struct {
	addr   string
	asking bool // there for this once: the slot is on its way
}

// suspicious is how long a server may be silent before we look whether another
// has taken its place, and, for a call that may be sent again, ask it then.
const suspicious = 500 * time.Millisecond

// sentinelAddr is what go-redis names as the address of what a Sentinel names.
const sentinelAddr = "FailoverClient"

func (ls *lanes) cluster() *redis.ClusterClient {
	cluster, _ := ls.own.(*redis.ClusterClient)
	return cluster
}

// of returns the lane to the server that owns key, or to where a server sent
// the call. copied is for calls that wait for replicas.
func (ls *lanes) of(ctx context.Context, key string, to route, copied bool) (*lane, error) {
	client, addr, err := ls.home(ctx, key)
	if err != nil {
		return nil, err
	}
	if to.addr != "" && addr != "" {
		addr = to.addr
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	at := place{addr, copied}
	l := ls.all[at]
	if l == nil {
		if ls.all == nil {
			ls.all = map[place]*lane{}
		}
		l = newLane(ls.clientAt(client, addr), !ls.evicting)
		ls.all[at] = l
	}
	if addr != "" {
		l.used = time.Now()
	}
	return l, nil
}

// home returns go-redis's client of the server that owns key as far as we know
// and, in a Cluster, its address.
func (ls *lanes) home(ctx context.Context, key string) (client *redis.Client, addr string, err error) {
	if client, ok := ls.own.(*redis.Client); ok {
		return client, "", nil
	}
	if client, err = ls.master(ctx, key); err != nil {
		return nil, "", err
	}
	return client, client.Options().Addr, nil
}

// like is clientAt for who has not locked ls.
func (ls *lanes) like(client *redis.Client, addr string) *redis.Client {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.clientAt(client, addr)
}

// clientAt returns our client of the Cluster's node at addr, made like that of
// another node; without a Cluster it is like itself. ls is locked.
func (ls *lanes) clientAt(like *redis.Client, addr string) *redis.Client {
	if addr == "" {
		return like
	}
	client := ls.clients[addr]
	if client == nil {
		o := *like.Options()
		o.Addr, o.NodeAddress = addr, ""
		o.DialTimeout, o.ReadTimeout = ls.node.DialTimeout, ls.node.ReadTimeout
		client = redis.NewClient(&o)
		if ls.clients == nil {
			ls.clients = map[string]*redis.Client{}
		}
		ls.clients[addr] = client
	}
	return client
}

// master returns go-redis's client of the master of key's slot. It does I/O
// only before there is a map of slots, and then not for longer than ctx.
func (ls *lanes) master(ctx context.Context, key string) (*redis.Client, error) {
	ls.mu.Lock()
	if !ls.mapped {
		m := ls.mapping
		if m == nil {
			m = &mapping{done: make(chan struct{})}
			ls.mapping = m
			ls.work.Go(func() { ls.read(m, key) })
		}
		ls.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		if m.err != nil {
			return nil, m.err
		}
	} else {
		ls.mu.Unlock()
	}
	client, err := ls.cluster().MasterForKey(ctx, key)
	if err != nil { // nobody owns the slot
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	return client, nil
}

// read has go-redis read the map of slots, one caller for all: it asks one
// node after the other, each until it times out, whatever becomes of the caller.
func (ls *lanes) read(m *mapping, key string) {
	_, err := ls.cluster().MasterForKey(context.Background(), key)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if err != nil {
		m.err = fmt.Errorf("%w: %w", errNotSent, err)
	}
	ls.mapped = err == nil
	ls.mapping = nil
	close(m.done)
}

func (ls *lanes) close() error {
	ls.mu.Lock()
	var err error
	ls.closed = true
	if ls.sweeper != nil {
		ls.sweeper.Stop()
	}
	for _, l := range ls.all {
		err = errors.Join(err, l.close())
	}
	for _, c := range ls.clients {
		err = errors.Join(err, c.Close())
	}
	ls.mu.Unlock()
	return err
}

// passing reports whether err, the fate of a call that was sent after begin, is
// a state that passes soon (a failover, a slot on its way, a server that is
// starting), and where to send the call then. It sees to it that what is known
// of the servers is asked for anew; that is done in the background.
func (ls *lanes) passing(err error, begin time.Time) (to route, passing bool) {
	if !isAnswer(err) {
		if !errors.Is(err, errNotSent) && !errors.Is(err, errNoAnswer) {
			return route{}, false // the server is unfit
		}
		ls.reload()
		gone := errors.Is(err, errNotSent) && ls.roams && !errors.Is(err, redis.ErrClosed)
		return route{}, gone || errors.Is(err, errNoAnswer) || errors.Is(err, errNoGreeting)
	}
	text := err.Error()
	if moved, ok := strings.CutPrefix(text, "MOVED "); ok {
		ls.reload()
		return route{addr: target(moved)}, true
	}
	if ask, ok := strings.CutPrefix(text, "ASK "); ok {
		addr := target(ask)
		return route{addr: addr, asking: addr != ""}, true
	}
	for _, state := range []string{"TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "LOADING "} {
		if strings.Contains(text, state) {
			ls.reload()
			if state == "READONLY " {
				// Our connections lead to what is a replica by now. go-redis would
				// keep those on which it had the answer within a pipeline.
				ls.wires.cutBefore(begin)
			}
			return route{}, true
		}
	}
	return route{}, false
}

// reload has what is known of the servers asked for anew, and told to those
// whom it concerns. It does not wait.
func (ls *lanes) reload() {
	ls.refresh()
	ls.moving()
}

func (ls *lanes) refresh() {
	if cluster := ls.cluster(); cluster != nil {
		cluster.ReloadState(context.Background())
		ls.sweepLater()
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
