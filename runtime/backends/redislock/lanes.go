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

	mu      sync.Mutex
	all     map[place]*lane
	clients map[string]*redis.Client // by address, in a Cluster: go-redis closes its own as it likes
	mapped  bool                     // there is a map of slots: to find a master asks nobody any more
	mapping *mapping                 // the attempt to get one that is under way
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
	client, addr := ls.single()
	if client == nil {
		master, err := ls.master(ctx, key)
		if err != nil {
			return nil, err
		}
		client, addr = master, master.Options().Addr
		if to.addr != "" {
			addr = to.addr
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	at := place{addr, copied}
	l := ls.all[at]
	if l == nil {
		if ls.all == nil {
			ls.all = map[place]*lane{}
		}
		l = newLane(ls.clientAt(client, addr))
		ls.all[at] = l
	}
	return l, nil
}

func (ls *lanes) single() (client *redis.Client, addr string) {
	client, _ = ls.own.(*redis.Client)
	return client, ""
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
		ls.reload()
		gone := errors.Is(err, errNotSent) && ls.roams && !errors.Is(err, redis.ErrClosed)
		return route{}, gone || errors.Is(err, errNoAnswer)
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

func (ls *lanes) reload() {
	if cluster := ls.cluster(); cluster != nil {
		cluster.ReloadState(context.Background()) // does not wait
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

// mayEvict returns an error if the server's configuration lets it evict locks.
func (l *lane) mayEvict() error {
	text, err := l.client.Info(context.Background(), "memory").Result()
	if isAnswer(err) {
		return nil // no right to ask, or no such command: it can't be known
	}
	if err != nil {
		return classify(err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	limited := info["maxmemory"] != "" && info["maxmemory"] != "0"
	if policy := info["maxmemory_policy"]; limited && policy != "noeviction" {
		return fmt.Errorf("the server may evict locks: its maxmemory-policy is %s; set noeviction, "+
			"or accept it by redislock.Options.AllowEviction", policy)
	}
	return nil
}
