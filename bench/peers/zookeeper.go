package peers

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

var zookeeperEngine = &Engine{
	Name: "zookeeper", Env: "LOCKGEN_TEST_ZOOKEEPER",
	Peers: []*Peer{zkLockPeer, curatorKinds, zkLockgenPeer},
}

// zkLockPeer is the lock of go-zookeeper, with one session for the process.
var zkLockPeer = &Peer{
	Name:  "zk.Lock",
	About: "go-zookeeper v1.0.4; one Conn per process, a Lock per call; ignores contexts",
	Rival: true,
	Open: func(addr string, ttl time.Duration) (Client, error) {
		conn, events, err := zk.Connect([]string{addr}, ttl, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		go func() {
			for range events {
			}
		}()
		return &zkClient{conn}, nil
	},
}

// zkLockgenPeer is lockgen on ZooKeeper with default Options.
var zkLockgenPeer = &Peer{
	Name:  Ours,
	About: "this project; default Options; one session per lease length, fencing tokens",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		return &lockgenClient{
			locker: lock.New(zklock.New([]string{addr}), nil),
			policy: &lock.Policy{Method: "bench", TTL: ttl},
			close:  func() error { return nil },
		}, nil
	},
}

type zkClient struct{ conn *zk.Conn }

func (c *zkClient) Lock(ctx context.Context, key string) (Lease, error) {
	l := &zkLease{zk.NewLock(c.conn, "/zk-lock/"+key, zk.WorldACL(zk.PermAll))}
	locked := make(chan error, 1)
	go func() { locked <- l.lock.Lock() }()
	select {
	case err := <-locked:
		return l, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *zkClient) Close() error {
	c.conn.Close()
	return nil
}

type zkLease struct{ lock *zk.Lock }

func (l *zkLease) Unlock(context.Context) error { return l.lock.Unlock() }

func (l *zkLease) Token() uint64 { return 0 }
