package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// singleOptions changes o to what a lock needs: no repetition by the library,
// no wait without a bound, and few connections.
func singleOptions(o *redis.Options) *redis.Options {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PoolSize = 4 // renewals; the lanes have connections of their own
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.PipelinePoolSize = -1
	o.Limiter = nil
	o.PushNotificationProcessor = nil // is the caller's client's own
	o.Protocol = 2                    // nothing is pushed to us, and looking for it costs
	o.DisableIdentity = true          // asks for rights that a lock does not need
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout), bounded(o.WriteTimeout)
	return o
}

// openSentinel dials the Sentinels as well: a client that [New] could copy
// takes those that it asks with it when it closes.
func openSentinel(universal redis.UniversalOptions, options []Options) *Backend {
	universal.ReadOnly = false // would be: replicas only
	o := universal.Failover()
	o.RouteByLatency, o.RouteRandomly = false, false
	dial := o.Dialer
	if dial == nil {
		timeout := o.DialTimeout
		if timeout == 0 {
			timeout = 5 * time.Second // go-redis's
		}
		dial = redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: o.TLSConfig})
	}
	w := newWires()
	o.Dialer = w.over(dial)
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled = true
	o.PoolSize = 4
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.PipelinePoolSize = -1
	o.PushNotificationProcessor = nil
	o.Protocol = 2
	o.DisableIdentity = true
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout), bounded(o.WriteTimeout)
	client := redis.NewFailoverClient(o)
	client.Options().Dialer = softly(client.Options().Dialer) // which asks the Sentinels first
	return newBackend(client, w, options)
}

func clusterOptions(o redis.ClusterOptions) redis.ClusterOptions {
	o.MaxRetries, o.MaxRedirects = -1, 3
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.PoolSize = 4
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.PipelinePoolSize = -1
	o.Protocol = 2
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.ReadTimeout, o.WriteTimeout = bounded(o.ReadTimeout), bounded(o.WriteTimeout)
	return o
}

// mapOptions are for the client that reads the map of slots: it asks one node
// after the other, in random order, and a hung one must not keep it from those
// that know who took its place.
func mapOptions(o redis.ClusterOptions) *redis.ClusterOptions {
	if o.DialTimeout <= 0 || o.DialTimeout > time.Second {
		o.DialTimeout = time.Second
	}
	o.ReadTimeout = min(o.ReadTimeout, suspicious)
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
