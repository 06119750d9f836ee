package peers

import (
	"context"
	"sync"
	"time"
)

// fifo is the floor of a lock that is handed on between the goroutines of one process: a queue
// of channels and one reading of the clock. It uses no server and excludes no other process.
var fifo = &Peer{
	Name:      FIFO,
	About:     "a queue of channels inside one process, first come, first served, and one reading of the clock; no server",
	InProcess: true,
	Open: func(string, time.Duration) (Client, error) {
		return &fifoClient{
			queues:  map[string]*fifoQueue{},
			waiters: sync.Pool{New: func() any { return make(chan struct{}, 1) }},
		}, nil
	},
}

type fifoClient struct {
	waiters sync.Pool // of chan struct{}

	mu     sync.Mutex
	queues map[string]*fifoQueue // by key, for the keys that are held
}

// fifoQueue holds the waiters of one key.
type fifoQueue struct {
	waiting []chan struct{}
}

// fifoLease is one hold.
type fifoLease struct {
	client *fifoClient
	key    string
	since  time.Time
}

func (c *fifoClient) Lock(ctx context.Context, key string) (Lease, error) {
	l := &fifoLease{client: c, key: key}
	c.mu.Lock()
	q := c.queues[key]
	if q == nil {
		c.queues[key] = &fifoQueue{}
		c.mu.Unlock()
		l.since = time.Now()
		return l, nil
	}
	turn := c.waiters.Get().(chan struct{})
	q.waiting = append(q.waiting, turn)
	c.mu.Unlock()
	select {
	case <-turn:
		c.waiters.Put(turn)
		l.since = time.Now()
		return l, nil
	case <-ctx.Done(): // the benchmark is over, so the place in the queue stays
		return nil, ctx.Err()
	}
}

func (c *fifoClient) Close() error { return nil }

func (l *fifoLease) Unlock(context.Context) error {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[l.key]
	if len(q.waiting) == 0 {
		delete(c.queues, l.key)
		return nil
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	next <- struct{}{}
	return nil
}

func (l *fifoLease) Token() uint64 { return 0 }
