package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// New returns a Backend for the servers of client, a *redis.Client (also of
// Sentinel) or a *redis.ClusterClient. With another, and with nil, every call fails
// and says so. It copies the client's options and dials connections of its own, because
// a renewal must not wait behind business traffic, and because a command that the
// library repeats by itself could not be told from one that was sent once. The hooks
// that a *redis.Client has by then, as of redisotel, see the lock's commands as well;
// see [Options].Hooks for a *redis.ClusterClient. Maintenance notifications and the client-side
// cache are off on its connections. It does no I/O, and never closes client. A client of Sentinel is asked where the primary is for as long as the
// Backend lives: close it later, or use [Open].
func New(client redis.UniversalClient, options ...Options) *Backend {
	b := newBackend(options)
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return b.refuse("New got a nil *redis.Client; make it with redis.NewClient")
		}
		o := *c.Options()
		o.Dialer = b.untilClosed(o.Dialer)
		b.router.hooks = append([]redis.Hook{newBridge(c)}, b.router.hooks...)
		return b.use(redis.NewClient(lockOptions(&o, b.replicas().within)))
	case *redis.ClusterClient:
		if c == nil {
			return b.refuse("New got a nil *redis.ClusterClient; make it with redis.NewClusterClient")
		}
		o := *c.Options()
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer = b.untilClosed(o.Dialer)
		b.router.node = clusterOptions(o, b.replicas().within)
		return b.use(redis.NewClusterClient(slotMapOptions(b.router.node)))
	case *redis.Ring:
		return b.refuse("New got a *redis.Ring, whose servers know nothing of each other: a lock would be on another server as soon as one is away; " +
			"give it the client of one server, a Sentinel or a Cluster")
	case nil:
		return b.refuse("New got a nil client; give it a *redis.Client or a *redis.ClusterClient")
	}
	return b.refuse(fmt.Sprintf("New got a %T; give it the *redis.Client or *redis.ClusterClient inside, or use Open", client))
}

func newBackend(options []Options) *Backend {
	life := engine.NewLife()
	b := &Backend{life: life}
	for _, o := range options {
		b.options = o
	}
	b.router = router{life: life, allowEviction: b.options.AllowEviction, hooks: b.options.Hooks, directLimit: directLimit}
	return b
}

// use makes own, which was made from the caller's options, the client of b.
func (b *Backend) use(own redis.UniversalClient) *Backend {
	b.client, b.router.client = own, own
	b.subscriber, b.kinds = newSubscriber(&b.router), record.New(store{b})
	b.methods, b.subscriber.wanted = b.kinds.Register(), b.kinds.Wanted
	b.router.onReload = b.subscriber.testConnection
	switch c := own.(type) {
	case *redis.Client:
		b.tls, b.router.failsOver = c.Options().TLSConfig != nil, c.Options().Addr == sentinelAddr
	case *redis.ClusterClient:
		b.tls, b.router.failsOver = c.Options().TLSConfig != nil, true
	}
	return b
}

// refuse makes every call of b fail, because of why.
func (b *Backend) refuse(why string) *Backend {
	b.unusable = fmt.Errorf("%w: redislock: %s", driver.ErrInvalid, why)
	return b.use(redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, b.unusable }}))
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: the last Locker to close closes the connections.
func (b *Backend) Close() (err error) {
	b.life.Close(func() { err = errors.Join(b.router.close(), b.client.Close()) })
	return err
}

// Open is [New] with a client that it makes: for the servers of a URL, or those that
// *redis.UniversalOptions describe (one, those that a Sentinel names, or a Cluster; the
// fields about where reads go are ignored). The Backend owns the client: it closes when
// the last Locker on it does. If the URL or the options can't be used, every call and
// Ping return an error that says why.
//
// A URL is what go-redis reads, with options of go-redis in its query:
//
//	redis://user:password@host:6379/0
//	rediss://host:6380?dial_timeout=2s                    by TLS
//	redis://host:26379?master_name=shop&addr=host2:26379  by Sentinels
//	redis://host:7000?addr=host2:7000                     a Cluster, by some of its nodes
//	redis://host:7000?cluster=true                        a Cluster, by one of them
func Open[Source string | *redis.UniversalOptions](source Source, options ...Options) *Backend {
	switch s := any(source).(type) {
	case string:
		return openURL(s, options)
	case *redis.UniversalOptions:
		return openUniversal(s, options)
	}
	panic("unreachable")
}

func openUniversal(universal *redis.UniversalOptions, options []Options) *Backend {
	if universal == nil {
		return newBackend(options).refuse("Open got nil *redis.UniversalOptions")
	}
	if universal.MasterName != "" {
		return openSentinel(universal.Failover(), options)
	}
	client := redis.NewUniversalClient(universal)
	defer client.Close() // it never dialed
	return New(client, options...)
}

func openURL(text string, options []Options) *Backend {
	refuse := func(err error) *Backend {
		return newBackend(options).refuse("Open got a URL that can't be used: " + err.Error())
	}
	u, err := engine.ParseURL(text)
	if err != nil {
		return refuse(err)
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix" {
		return refuse(fmt.Errorf("its scheme is %q, not redis, rediss or unix", u.Scheme))
	}
	query := u.Query()
	cluster := query.Get("cluster") == "true" || query.Has("addr")
	query.Del("cluster")
	u.RawQuery = query.Encode()
	if query.Has("master_name") {
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return refuse(err)
		}
		return openSentinel(o, options)
	}
	var client redis.UniversalClient
	if cluster {
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return refuse(err)
		}
		client = redis.NewClusterClient(o)
	} else {
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return refuse(err)
		}
		client = redis.NewClient(o)
	}
	defer client.Close() // it never dialed
	return New(client, options...)
}
