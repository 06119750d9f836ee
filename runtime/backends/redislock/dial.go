package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// untilClosed returns dial until the last Locker closes: then it fails. Its errors wrap errDial.
func (b *Backend) untilClosed(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if b.life.Closed() { // nobody would close a client that a call makes while Close runs
			return nil, fmt.Errorf("%w: %w", errDial, redis.ErrClosed)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.life.Context(), cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDial, err)
		}
		return withGrace(conn), nil
	}
}

// readGrace is how long a connection is read once more after its deadline.
const readGrace = 5 * time.Millisecond

// graceConn reads once more after its deadline. In a process that did not run for a while, as
// in a container that has used up its share of the CPU, an answer that came in time looks
// late, and go-redis gives up the connection.
type graceConn struct {
	net.Conn
	reread atomic.Bool // since go-redis set the deadline
}

// graceSocket is a graceConn that go-redis may ask, between two calls, whether the
// server has closed it.
type graceSocket struct {
	*graceConn
	syscall.Conn
}

func withGrace(conn net.Conn) net.Conn {
	c := &graceConn{Conn: conn}
	if socket, ok := conn.(syscall.Conn); ok {
		return graceSocket{c, socket}
	}
	return c
}

// Read implements [net.Conn].
func (c *graceConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.reread.Swap(true) {
		return n, err
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(readGrace))
	return c.Conn.Read(b)
}

// SetReadDeadline implements [net.Conn].
func (c *graceConn) SetReadDeadline(t time.Time) error {
	c.reread.Store(false)
	return c.Conn.SetReadDeadline(t)
}

// NetConn returns the connection below, as that of a tls.Conn does.
func (c *graceConn) NetConn() net.Conn { return c.Conn }

// poolSize is the PoolSize of our clients. The batcher bounds how many connections are in
// use. go-redis refuses all calls for up to a second after so many failures to dial in
// a row, so it is large.
const poolSize = 1024

// lockOptions changes the caller's options to what a lock needs: nothing is repeated by
// the library, contexts are obeyed, nothing is cached and timeouts are bounded. All else is kept:
// credentials, TLS, dialer, limiter, protocol.
func lockOptions(o *redis.Options, extra time.Duration) *redis.Options {
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = poolSize, 0, 0, 0
	o.PipelinePoolSize = -1
	o.PushNotificationProcessor = nil // belongs to the caller's client; ours makes one
	o.ClientSideCacheConfig, o.ClientSideCache = nil, nil
	o.MaintNotificationsConfig = maintenanceOff()
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout)+extra, bounded(o.WriteTimeout)
	return o
}

// maintenanceOff turns maintenance notifications off, by which a server announces that
// connections are to be handed over. A lock's calls are sent again where one is lost; and
// go-redis v9.23 leaves goroutines of that feature behind when a client closes, and changes
// its options while other connections read them.
func maintenanceOff() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// openSentinel dials the Sentinels by itself. A Backend of [New] asks them through the
// caller's client, and can't once that is closed.
func openSentinel(o *redis.FailoverOptions, options []Options) *Backend {
	o.ReplicaOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	dial := o.Dialer
	if dial == nil {
		timeout := o.DialTimeout
		if timeout == 0 {
			timeout = 5 * time.Second // go-redis's
		}
		dial = redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: o.TLSConfig})
	}
	b := newBackend(options)
	b.sentinels = o.SentinelAddrs
	o.Dialer = b.untilClosed(dial)
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = poolSize, 0, 0, 0
	o.PipelinePoolSize = -1
	o.PushNotificationProcessor = nil
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout)+b.replicas().within, bounded(o.WriteTimeout)
	return b.use(redis.NewFailoverClient(o))
}

func clusterOptions(o redis.ClusterOptions, extra time.Duration) redis.ClusterOptions {
	o.MaxRetries, o.MaxRedirects = -1, 3
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = poolSize, 0, 0, 0
	o.PipelinePoolSize = -1
	o.MaintNotificationsConfig = maintenanceOff()
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	// Policies are for commands without a key. They cost a COMMAND at each client, and go-redis
	// writes to stderr if that fails.
	o.DisableRoutingPolicies = true
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout)+extra, bounded(o.WriteTimeout)
	return o
}

// slotMapOptions are for the client that reads the map of slots: it asks one node
// after the other, in random order, and a hung one must not keep it from those
// that know who took its place.
func slotMapOptions(o redis.ClusterOptions) *redis.ClusterOptions {
	if o.DialTimeout <= 0 || o.DialTimeout > time.Second {
		o.DialTimeout = time.Second
	}
	o.ReadTimeout = min(o.ReadTimeout, failoverTimeout)
	return &o
}

// bounded replaces "no timeout", and what is unset, by 3 s: long for a lock, and
// shorter than go-redis's own 5 s.
func bounded(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 3 * time.Second
	}
	return timeout
}
