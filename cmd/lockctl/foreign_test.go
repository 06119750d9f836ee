package main

import (
	"context"
	"database/sql"
	"io"
	"log"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/hashicorp/consul/api"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// redisson writes the value that Redisson's RLock writes.
func redisson(ts *testscript.TestScript, url, key string) {
	c := redisClient(ts, url)
	ts.Check(c.HSet(context.Background(), key, "6c1a5ad2-7f0b-4c57-9e0e-6a3a0a9d2f11:54", "1").Err())
	ts.Check(c.PExpire(context.Background(), key, time.Minute).Err())
}

func redisText(ts *testscript.TestScript, url, key string) {
	ts.Check(redisClient(ts, url).Set(context.Background(), key, "text", time.Minute).Err())
}

func redisClient(ts *testscript.TestScript, url string) *redis.Client {
	o, err := redis.ParseURL(url)
	ts.Check(err)
	c := redis.NewClient(o)
	ts.Defer(func() { _ = c.Close() })
	return c
}

// etcdMutex takes a lock like etcdctl.
func etcdMutex(ts *testscript.TestScript, url, key string) {
	s, err := concurrency.NewSession(etcdClient(ts, url))
	ts.Check(err)
	ts.Defer(func() { _ = s.Close() })
	ts.Check(concurrency.NewMutex(s, key).Lock(context.Background()))
}

func etcdValue(ts *testscript.TestScript, url, key string) {
	c := etcdClient(ts, url)
	_, err := c.Put(context.Background(), key, "text")
	ts.Check(err)
	ts.Defer(func() { _, _ = c.Delete(context.Background(), key) })
}

func etcdClient(ts *testscript.TestScript, url string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.TrimPrefix(url, "etcd://")}})
	ts.Check(err)
	ts.Defer(func() { _ = c.Close() })
	return c
}

// consulLock takes a lock like consul lock.
func consulLock(ts *testscript.TestScript, url, key string) {
	l, err := consulClient(ts, url).LockKey(key)
	ts.Check(err)
	_, err = l.Lock(nil)
	ts.Check(err)
	ts.Defer(func() { _ = l.Unlock() })
}

func consulValue(ts *testscript.TestScript, url, key string) {
	c := consulClient(ts, url)
	_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte("text")}, nil)
	ts.Check(err)
	ts.Defer(func() { _, _ = c.KV().Delete(key, nil) })
}

func consulClient(ts *testscript.TestScript, url string) *api.Client {
	c, err := api.NewClient(&api.Config{Address: strings.TrimPrefix(url, "consul://")})
	ts.Check(err)
	return c
}

// zkLock takes a lock like go-zookeeper.
func zkLock(ts *testscript.TestScript, url, key string) {
	ts.Check(zk.NewLock(zkConn(ts, url), "/lockgen/"+key, zk.WorldACL(zk.PermAll)).Lock())
}

func zkNode(ts *testscript.TestScript, url, key string) {
	c := zkConn(ts, url)
	_, _ = c.Create("/lockgen", nil, 0, zk.WorldACL(zk.PermAll)) // unless it exists
	_, err := c.Create("/lockgen/"+key, []byte("text"), 0, zk.WorldACL(zk.PermAll))
	ts.Check(err)
	ts.Defer(func() { _ = c.Delete("/lockgen/"+key, -1) })
}

func zkConn(ts *testscript.TestScript, url string) *zk.Conn {
	c, _, err := zk.Connect([]string{strings.TrimPrefix(url, "zk://")}, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(log.New(io.Discard, "", 0)))
	ts.Check(err)
	ts.Defer(c.Close)
	return c
}

// migrated creates the table of locks in the database of the URL.
func migrated(t *testing.T, url string) string {
	b, err := (&command{settings: settings{url: url}}).open()
	require.NoError(t, err)
	require.NoError(t, b.Backend.(*sqllock.Backend).Migrate(t.Context()))
	require.NoError(t, b.Close())
	return url
}

func mariaDB(t *testing.T) string {
	addr := testserver.MySQL(t)
	db, err := sql.Open("mysql", "root@tcp("+addr+")/")
	require.NoError(t, err)
	_, err = db.Exec("CREATE DATABASE IF NOT EXISTS lockgen")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return migrated(t, "mysql://root@"+addr+"/lockgen")
}

func sqliteFile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA journal_mode=WAL") // as sqllock recommends; the setting stays in the file
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return migrated(t, "file:"+path)
}
