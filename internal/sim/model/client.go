package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

const (
	tries     = 3                      // attempts of one Acquire
	farewell  = 100 * time.Millisecond // limit of the request that ends the sessions
	freeAgain = 20 * time.Millisecond  // between two attempts to free a lock whose lease has expired
	undoAgain = time.Second            // between two attempts of an undo that the Locker has given up
)

// Client is the backend of one process. Besides [driver.Backend] it is a
// [driver.BatchRenewer] and a [driver.Notifier]; its leases are [driver.LossNotifier] unless
// they are of Row.
type Client struct {
	server  *Server
	number  uint64 // among the clients of the server
	path    *vnet.Path
	timeout time.Duration // of each request
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // all goroutines

	mu            sync.Mutex // held only for moments, guards the rest
	closed        bool
	slots         []*link // nil if not connected
	turn          int
	links         uint64 // number of links so far
	sessions      uint64 // number of sessions so far
	tickets       []*ticket
	undoing       map[string]bool // IDs of acquisitions that undoLater undoes
	subscriptions []*subscription
}

func newClient(s *Server, p *vnet.Path, timeout time.Duration, number uint64) *Client {
	c := &Client{server: s, number: number, path: p, timeout: timeout, slots: make([]*link, s.kind.slots()), undoing: map[string]bool{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// spawn runs do in a goroutine that Close waits for, unless c is closed.
func (c *Client) spawn(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.tasks.Go(do)
	}
}

// Acquire implements [driver.Backend]. If an attempt has no answer, it sends another one on
// another connection. If the session has expired, it uses a new one.
func (c *Client) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	silent := false // whether an attempt has no answer
	for try := 1; ; try++ {
		l, err := c.attempt(ctx, a)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errSilent):
			a.MayHaveRun, silent = true, true
		case !errors.Is(err, errGone) && !errors.Is(err, errUnsent):
			return nil, err // an answer of the server
		}
		if ctx.Err() != nil || try == tries {
			return nil, indeterminate(err, silent)
		}
	}
}

func indeterminate(err error, is bool) error {
	if is {
		return fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return err
}

// attempt makes one attempt. errSilent means that the attempt may have taken effect.
func (c *Client) attempt(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	t, err := c.ticket(ctx, a)
	if err != nil {
		return nil, err
	}
	session, wish := uint64(0), *a // a copy, since a changes while a request may be running
	if t != nil {
		session = t.id
	}
	request := func(do func(*link, uint64, driver.Acquisition) (taken, error)) (taken, error) {
		return ask(ctx, c, c.anySlot(), c.timeout, func(l *link) (taken, error) { return do(l, session, wish) })
	}
	a.MayBeGranted = a.MayBeGranted || a.Queue && c.server.kind.queues()
	sent, last := driver.Now(), c.server.take
	if c.server.kind == ZooKeeper {
		if _, err := request(c.server.join); err != nil {
			return nil, err
		}
		sent, last = driver.Now(), c.server.look
	}
	got, err := request(last)
	if err != nil {
		return nil, err
	}
	l := c.newLease(a, t, got, sent)
	if t == nil {
		return l, nil
	}
	return &sessionLease{l}, nil
}

// Undo implements [driver.Backend]. The Locker gives up when the lease would be over. A session may
// live on for other leases, so the client repeats an undo that has failed, as the backends of the
// engines do.
func (c *Client) Undo(ctx context.Context, a *driver.Acquisition) error {
	err := c.undo(ctx, a.Key, a.ID)
	if err != nil && c.server.kind != Row {
		c.undoLater(a.Key, a.ID)
	}
	return err
}

// undoLater tries to undo an acquisition in the background, once a second until it succeeds.
func (c *Client) undoLater(key, id string) {
	c.mu.Lock()
	known := c.undoing[id]
	c.undoing[id] = true
	c.mu.Unlock()
	if known {
		return
	}
	c.spawn(func() {
		timer := time.NewTimer(undoAgain)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-c.ctx.Done():
				return
			}
			if c.undo(c.ctx, key, id) == nil {
				break
			}
			timer.Reset(undoAgain)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.undoing, id)
	})
}

func (c *Client) undo(ctx context.Context, key, id string) error {
	sessions := c.alive()
	_, err := ask(ctx, c, c.anySlot(), c.timeout, func(*link) (struct{}, error) {
		c.server.undo(key, id, sessions)
		return struct{}{}, nil
	})
	return err
}

// alive returns the IDs of the sessions that may be alive.
func (c *Client) alive() (ids []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tickets {
		ids = append(ids, t.id)
	}
	return ids
}

// CompareAndSwap implements [driver.Agreement].
func (c *Client) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	return ask(ctx, c, c.anySlot(), c.timeout, func(*link) (string, error) {
		if c.server.values[key] == old {
			c.server.values[key] = next
		}
		return c.server.values[key], nil
	})
}

// RenewAll implements [driver.BatchRenewer] with one request.
func (c *Client) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	var grants []grant
	var asked []int // grants[i] belongs to leases[asked[i]]
	for i, one := range leases {
		if g, held := plain(one).grant(); held {
			grants, asked = append(grants, g), append(asked, i)
		} else {
			errs[i] = driver.ErrLost
		}
	}
	if len(grants) == 0 {
		return errs
	}
	sent := driver.Now()
	answers, err := ask(ctx, c, c.anySlot(), c.timeout, func(l *link) ([]error, error) {
		answers := make([]error, len(grants))
		for i, g := range grants {
			answers[i] = c.server.renew(l, g, ttls[asked[i]])
		}
		return answers, nil
	})
	for n, i := range asked {
		if err != nil {
			errs[i] = err
			continue
		}
		errs[i] = plain(leases[i]).renewed(sent, ttls[i], answers[n])
	}
	return errs
}

// Close implements [driver.Backend]. It ends the sessions, and waits for that for
// at most 100 ms.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true // no new connections or sessions from now on
	c.mu.Unlock()
	sessions := c.alive()
	ctx, cancel := context.WithTimeout(c.ctx, farewell)
	defer cancel()
	for slot := 0; slot < len(c.slots) && len(sessions) > 0; slot++ {
		_, err := ask(ctx, c, slot, farewell, func(*link) (struct{}, error) {
			c.server.leave(sessions)
			return struct{}{}, nil
		})
		if err == nil { // otherwise they expire
			break
		}
	}
	c.cancel()
	c.tasks.Wait()
	return nil
}

// subscription is the subscription of one waiter to a key.
type subscription struct {
	client *Client
	key    string
	c      chan struct{}
}

// Subscribe implements [driver.Notifier].
func (c *Client) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	s := &subscription{client: c, key: a.Key, c: make(chan struct{}, 1)}
	c.mu.Lock()
	c.subscriptions = append(c.subscriptions, s) // before the request, so that each new connection has it
	c.mu.Unlock()
	_, err := ask(ctx, c, 0, c.timeout, func(l *link) (struct{}, error) {
		l.watches[s.key] = true
		return struct{}{}, nil
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// C implements [driver.Subscription].
func (s *subscription) C() <-chan struct{} { return s.c }

// Close implements [driver.Subscription]. It does not wait for the server.
func (s *subscription) Close() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriptions = slices.DeleteFunc(c.subscriptions, func(one *subscription) bool { return one == s })
	l := c.slots[0]
	if l.isUp() && !slices.ContainsFunc(c.subscriptions, func(one *subscription) bool { return one.key == s.key }) {
		l.request(func() { delete(l.watches, s.key) })
	}
}

// notice notifies the waiters for key.
func (c *Client) notice(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subscriptions {
		if s.key != key {
			continue
		}
		select {
		case s.c <- struct{}{}:
		default: // it already has a notice
		}
	}
}

// remains lists the subscriptions that were not closed.
func (c *Client) remains() (left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subscriptions {
		left = append(left, "a subscription to "+s.key+" was never closed")
	}
	return left
}
