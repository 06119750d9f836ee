package peers

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
)

var consulEngine = &Engine{
	Name: "consul", Env: "LOCKGEN_TEST_CONSUL",
	Peers: []*Peer{apiLock, apiLockPooled, consulOurs},
}

func consulClient(addr string) (*api.Client, func(), error) {
	c := api.DefaultConfig()
	c.Address = addr
	c.Transport.MaxIdleConnsPerHost = 64 // with fewer, connections are opened again and again
	client, err := api.NewClient(c)
	return client, c.Transport.CloseIdleConnections, err
}

// consulOurs is lockgen on Consul with default Options.
var consulOurs = &Peer{
	Name:       Ours,
	About:      "this project; default Options; one session, renewed at a third of the lease, fencing tokens",
	RenewEvery: lockgenPeer.RenewEvery,
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client, done, err := consulClient(addr)
		if err != nil {
			return nil, err
		}
		return &lockgenClient{
			locker: lock.New(consullock.New(client), nil),
			policy: &lock.Policy{Method: "bench", TTL: ttl},
			close:  func() error { done(); return nil },
		}, nil
	},
}

// apiLock is the lock of Consul's client, used as its documentation shows: each lock creates a
// session, which its renewal goroutine destroys.
var apiLock = &Peer{
	Name:  "api.Lock",
	About: "github.com/hashicorp/consul/api; a session for each lock",
	Rival: true,
	Open:  func(addr string, ttl time.Duration) (Client, error) { return openAPILock(addr, ttl, false) },
}

// apiLockPooled reuses sessions, but each caller that locks or waits has one of its own: two
// callers on one session would both get the lock.
var apiLockPooled = &Peer{
	Name:  "api.Lock-pooled",
	About: "github.com/hashicorp/consul/api; sessions are used again, by one lock at a time",
	Rival: true,
	Open:  func(addr string, ttl time.Duration) (Client, error) { return openAPILock(addr, ttl, true) },
}

func openAPILock(addr string, ttl time.Duration, pooled bool) (Client, error) {
	client, done, err := consulClient(addr)
	if err != nil {
		return nil, err
	}
	c := &apiLockClient{client: client, done: done, ttl: max(ttl, 10*time.Second).String()}
	if pooled {
		c.pool = make(chan string, 1024)
	}
	return c, nil
}

type apiLockClient struct {
	client *api.Client
	done   func()
	ttl    string
	pool   chan string // of sessions; nil for apiLock
}

func (c *apiLockClient) session() (id string, err error) {
	if c.pool == nil {
		return "", nil
	}
	select {
	case id = <-c.pool:
	default:
		id, _, err = c.client.Session().Create(&api.SessionEntry{TTL: c.ttl}, nil)
	}
	return id, err
}

func (c *apiLockClient) Lock(ctx context.Context, key string) (Lease, error) {
	id, err := c.session()
	if err != nil {
		return nil, err
	}
	l, err := c.client.LockOpts(&api.LockOptions{Key: key, Session: id, SessionTTL: c.ttl})
	if err != nil {
		return nil, err
	}
	lost, err := l.Lock(ctx.Done())
	switch {
	case err != nil:
		return nil, err
	case lost == nil:
		return nil, ctx.Err()
	}
	return &apiLockLease{c, l, id}, nil
}

func (c *apiLockClient) Close() error {
	var errs []error
	for len(c.pool) > 0 {
		_, err := c.client.Session().Destroy(<-c.pool, nil)
		errs = append(errs, err)
	}
	c.done()
	return errors.Join(errs...)
}

type apiLockLease struct {
	client  *apiLockClient
	lock    *api.Lock
	session string
}

func (l *apiLockLease) Unlock(context.Context) error {
	err := l.lock.Unlock()
	if l.client.pool != nil {
		l.client.pool <- l.session
	}
	return err
}

func (l *apiLockLease) Token() uint64 { return 0 }
