package peers

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
)

var etcdEngine = &Engine{
	Name: "etcd", Env: "LOCKGEN_TEST_ETCD",
	Peers: []*Peer{etcdMutex, etcdOurs},
}

func etcdClient(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
}

// etcdOurs is lockgen on etcd with default Options.
var etcdOurs = &Peer{
	Name:       Ours,
	About:      "this project; default Options; one session, kept alive at a third of the lease, fencing tokens",
	RenewEvery: lockgenPeer.RenewEvery,
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client, err := etcdClient(addr)
		if err != nil {
			return nil, err
		}
		return &lockgenClient{
			locker: lock.New(etcdlock.New(client), nil),
			policy: &lock.Policy{Method: "bench", TTL: ttl},
			close:  client.Close,
		}, nil
	},
}

// etcdMutex is the lock of etcd's client. Sessions are reused, by one lock at a time: a second
// lock on a session would be granted as well.
var etcdMutex = &Peer{
	Name:  "concurrency.Mutex",
	About: "go.etcd.io/etcd/client/v3/concurrency v3.7.3; a session for each that locks or waits, used again",
	Rival: true,
	Open: func(addr string, ttl time.Duration) (Client, error) {
		client, err := etcdClient(addr)
		if err != nil {
			return nil, err
		}
		return &mutexClient{client, int(ttl.Seconds()), make(chan *concurrency.Session, 1024)}, nil
	},
}

type mutexClient struct {
	client   *clientv3.Client
	ttl      int
	sessions chan *concurrency.Session // those that are not in use
}

func (c *mutexClient) Lock(ctx context.Context, key string) (Lease, error) {
	var s *concurrency.Session
	select {
	case s = <-c.sessions:
	default:
		var err error
		if s, err = concurrency.NewSession(c.client, concurrency.WithTTL(c.ttl)); err != nil {
			return nil, err
		}
	}
	m := concurrency.NewMutex(s, key)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &mutexLease{c, s, m}, nil
}

func (c *mutexClient) Close() error {
	for len(c.sessions) > 0 {
		_ = (<-c.sessions).Close()
	}
	return c.client.Close()
}

type mutexLease struct {
	client  *mutexClient
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (l *mutexLease) Unlock(ctx context.Context) error {
	err := l.mutex.Unlock(ctx)
	l.client.sessions <- l.session
	return err
}

func (l *mutexLease) Token() uint64 { return 0 }
