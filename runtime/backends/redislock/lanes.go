package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// lanes finds the lane to the server that owns a key.
type lanes struct {
	own redis.UniversalClient

	mu  sync.Mutex
	all map[*redis.Client]*lane
}

func (ls *lanes) of(ctx context.Context, key string) (*lane, error) {
	client, ok := ls.own.(*redis.Client)
	if !ok {
		var err error
		client, err = ls.own.(*redis.ClusterClient).MasterForKey(ctx, key)
		if err != nil {
			return nil, classify(err)
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.all[client]
	if l == nil {
		if ls.all == nil {
			ls.all = map[*redis.Client]*lane{}
		}
		l = newLane(client)
		ls.all[client] = l
	}
	return l, nil
}

func (ls *lanes) close() error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var err error
	for _, l := range ls.all {
		err = errors.Join(err, l.close())
	}
	return err
}

// passing reports whether err, which the server answered, is a state that
// passes soon: a failover, a slot on its way, a server that is starting. In a
// Cluster the map of slots is read anew.
func (ls *lanes) passing(ctx context.Context, err error) bool {
	if !isAnswer(err) {
		return false
	}
	text := err.Error()
	for _, state := range []string{"MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "MASTERDOWN ", "LOADING "} {
		if strings.Contains(text, state) {
			if cluster, ok := ls.own.(*redis.ClusterClient); ok {
				cluster.ReloadState(ctx)
			}
			return true
		}
	}
	return false
}

// mayEvict returns an error if the server's configuration lets it evict locks.
func (l *lane) mayEvict() error {
	text, err := l.client.Info(context.Background(), "memory").Result()
	if isAnswer(err) {
		return nil // no right to ask, or no such command: it can't be known
	}
	if err != nil {
		return classify(err)
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	limited := info["maxmemory"] != "" && info["maxmemory"] != "0"
	if policy := info["maxmemory_policy"]; limited && policy != "noeviction" {
		return fmt.Errorf("the server may evict locks: its maxmemory-policy is %s; set noeviction, "+
			"or accept it by redislock.Options.AllowEviction", policy)
	}
	return nil
}
