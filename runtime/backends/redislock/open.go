package redislock

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Open is [New] for servers that it makes a client for: those of a URL, or those that
// *redis.UniversalOptions describe (one, those that a Sentinel names, or a Cluster; the
// fields that have to do with where reads go count for nothing). The Backend owns the
// client: it closes when the last Locker on it does. What is wrong with the URL or the
// options is the error of every call, and of Ping.
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
		u := *universal
		u.ReadOnly = false // would be: replicas only
		return openSentinel(u.Failover(), options)
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
		o.ReplicaOnly = false
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
