package redislock

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ear is the connection on which one server tells of releases. It is a client
// that dials once: of a connection that is lost, go-redis would subscribe to all
// channels anew by one command, which a Cluster refuses where they are in
// several slots. What to do about a loss is the listener's to decide.
type ear struct {
	listener *listener
	addr     string // in a Cluster
	client   *redis.Client
	pubsub   *redis.PubSub
	work     chan struct{} // there are orders
	over     chan struct{} // closed when the connection is lost

	// Under the listener's mutex.
	orders    []order // to be written
	pending   []order // written, and not answered
	heard     time.Time
	topics    int
	grants    standing  // of the channel of grants
	idle      time.Time // since when it has none
	lost      bool
	alone     bool // it refused some channel, and with it those that were asked for together
	unsharded bool // the server knows no sharded channels
}

// order is one command; its verb is also what the server answers it with.
type order struct {
	verb     string
	channels []string
	sent     time.Time
}

const (
	subscribe    = "subscribe"
	unsubscribe  = "unsubscribe"
	ssubscribe   = "ssubscribe"
	sunsubscribe = "sunsubscribe"
	ping         = "ping"
)

func newEar(l *listener, o redis.Options, addr string) *ear {
	now := time.Now()
	e := &ear{listener: l, addr: addr, work: make(chan struct{}, 1), over: make(chan struct{}), heard: now, idle: now}
	o.Dialer = once(o.Dialer)
	e.client = redis.NewClient(&o)
	e.pubsub = e.client.Subscribe(context.Background())
	l.done.Go(e.write)
	return e
}

// once returns dial for the first call; it fails all others.
func once(dial dialer) dialer {
	var first sync.Once
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = errNoAnswer
		first.Do(func() { conn, err = dial(ctx, network, addr) })
		return conn, err
	}
}

// order has e send a command. The listener is locked.
func (e *ear) order(verb string, channels ...string) {
	if e.lost {
		return
	}
	if n := len(e.orders); n > 0 && verb == subscribe && e.orders[n-1].verb == subscribe && !e.alone {
		e.orders[n-1].channels = append(e.orders[n-1].channels, channels...)
	} else {
		e.orders = append(e.orders, order{verb: verb, channels: channels})
	}
	select {
	case e.work <- struct{}{}:
	default:
	}
}

// write sends what was ordered: alone, so that nobody waits for a slow server. It owns
// the PubSub, which is locked while it dials and greets: reading begins after that, and
// ends when write closes the connection.
func (e *ear) write() {
	defer e.close()
	for reading := false; ; {
		batch, lost := e.ordered()
		if lost {
			return
		}
		for _, o := range batch {
			if e.send(o) != nil {
				e.end()
				return
			}
			if !reading {
				reading = true
				e.listener.done.Go(e.read)
			}
		}
		select {
		case <-e.work:
		case <-e.over:
			return
		}
	}
}

// ordered returns what is to be sent now.
func (e *ear) ordered() (batch []order, lost bool) {
	e.listener.mu.Lock()
	defer e.listener.mu.Unlock()
	batch, e.orders = e.orders, nil
	for i := range batch {
		batch[i].sent = time.Now()
	}
	e.pending = append(e.pending, batch...)
	return batch, e.lost
}

// end says that the connection is lost.
func (e *ear) end() {
	e.listener.mu.Lock()
	defer e.listener.mu.Unlock()
	e.listener.lose(e)
}

func (e *ear) send(o order) error {
	ctx := context.Background()
	switch o.verb {
	case subscribe:
		return e.pubsub.Subscribe(ctx, o.channels...)
	case unsubscribe:
		return e.pubsub.Unsubscribe(ctx, o.channels...)
	case ssubscribe:
		return e.pubsub.SSubscribe(ctx, o.channels...)
	case sunsubscribe:
		return e.pubsub.SUnsubscribe(ctx, o.channels...)
	}
	return e.pubsub.Ping(ctx)
}

// read hands on what the server says, until the connection is lost.
func (e *ear) read() {
	l := e.listener
	for {
		message, err := e.pubsub.ReceiveTimeout(context.Background(), 0)
		if err != nil && !isAnswer(err) {
			e.end()
			return
		}
		l.mu.Lock()
		e.heard = time.Now()
		switch m := message.(type) {
		case *redis.Message:
			l.notice(m.Channel, m.Payload)
		case *redis.Subscription:
			asked := e.answered(m.Kind, m.Channel)
			switch m.Kind {
			case subscribe:
				l.stands(e, m.Channel, plain)
			case ssubscribe:
				l.stands(e, m.Channel, sharded)
			case sunsubscribe:
				if !asked { // the slot has gone elsewhere
					l.moved(e, m.Channel, "")
				}
			}
		case *redis.Pong:
			e.answered(ping, "")
		default:
			e.refused(err)
		}
		l.mu.Unlock()
	}
}

// answered takes channel out of the first order of this verb that names it, and
// reports whether there was one.
func (e *ear) answered(verb, channel string) bool {
	for i := range e.pending {
		o := &e.pending[i]
		if o.verb != verb {
			continue
		}
		at := slices.Index(o.channels, channel)
		if at < 0 && verb != ping {
			continue
		}
		if len(o.channels) > 1 {
			o.channels = slices.Delete(o.channels, at, at+1)
		} else {
			e.pending = slices.Delete(e.pending, i, i+1)
		}
		return true
	}
	return false
}

// refused deals with an error, which answers the first of the orders. The
// listener is locked.
func (e *ear) refused(err error) {
	if len(e.pending) == 0 {
		return
	}
	o := e.pending[0]
	e.pending = e.pending[1:]
	l, text := e.listener, err.Error()
	var from source
	switch o.verb {
	case subscribe:
		from = plain
	case ssubscribe:
		from = sharded
	default:
		return
	}
	if len(o.channels) > 1 { // some of them may be to be had
		e.alone = true
		for _, channel := range o.channels {
			e.order(o.verb, channel)
		}
		return
	}
	channel := o.channels[0]
	moved, isMoved := strings.CutPrefix(text, "MOVED ")
	switch {
	case isMoved:
		l.moved(e, channel, target(moved))
	case from == sharded && strings.HasPrefix(text, "CLUSTERDOWN "):
		l.moved(e, channel, "")
	default:
		e.unsharded = e.unsharded || from == sharded && strings.HasPrefix(text, "ERR unknown command")
		l.refused(e, channel, from, fmt.Errorf("the server refuses to subscribe to %s: %w", channel, err))
	}
}

// waits is how long the first of the orders that were sent has had no answer
// while nothing else was heard; 0 if there is none. The listener is locked.
func (e *ear) waits(now time.Time) time.Duration {
	if len(e.pending) == 0 {
		return 0
	}
	since := e.pending[0].sent
	if e.heard.After(since) {
		since = e.heard
	}
	return now.Sub(since)
}

// close ends the connection.
func (e *ear) close() {
	_ = e.pubsub.Close()
	_ = e.client.Close()
}
