package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/consullock"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// engine is an engine and the schemes of its URLs.
type engine struct {
	schemes []string
	example string
	summary string
	open    func(url string) (driver.Backend, error)

	clockless bool // it has no clock, so each process counts by itself how long a lease of a record lasts
}

var engines = []engine{
	{[]string{"redis", "rediss", "unix"}, "redis://user:password@host:6379/0", "Redis (rediss: by TLS; ?cluster=true, ?master_name=NAME)", openRedis, false},
	{[]string{"etcd", "etcds"}, "etcd://user:password@host:2379,host2:2379", "etcd (etcds: by TLS)", openEtcd, true},
	{[]string{"consul", "consuls"}, "consul://:token@host:8500?dc=paris", "Consul (consuls: by TLS)", openConsul, true},
	{[]string{"zk"}, "zk://user:password@host:2181,host2:2181/path", "ZooKeeper (the default path is /lockgen)", openZooKeeper, true},
	{[]string{"postgres", "postgresql"}, "postgres://user:password@host:5432/database", "PostgreSQL, table lockgen_locks", openPostgres, false},
	{[]string{"mysql"}, "mysql://user:password@host:3306/database", "MySQL and MariaDB, table lockgen_locks", openMySQL, false},
	{[]string{"file"}, "file:/path/to/locks.db", "SQLite, table lockgen_locks", openSQLite, false},
}

// backend is an engine that can be inspected.
type backend struct {
	driver.Backend
	driver.Inspector
	clockless bool                       // see engine
	processes map[string]*driver.Process // those that were looked up; nil if the engine has none
}

// open returns the engine at the URL.
func (c *command) open() (*backend, error) {
	if c.url == "" {
		return nil, usage("no URL: set -url or LOCKCTL_URL to the engine of the locks; lockctl help lists the schemes")
	}
	scheme, _, found := strings.Cut(c.url, ":")
	if !found {
		return nil, usage("the URL has no scheme; lockctl help lists them")
	}
	for _, e := range engines {
		for _, s := range e.schemes {
			if s != scheme {
				continue
			}
			b, err := e.open(c.url)
			if own, ok := errors.AsType[*fail](err); ok {
				return nil, own
			} else if err != nil {
				return nil, usage("%v", err)
			}
			return &backend{Backend: b, Inspector: b.(driver.Inspector), clockless: e.clockless, processes: map[string]*driver.Process{}}, nil
		}
	}
	return nil, usage("no engine has the scheme %q; lockctl help lists all schemes", scheme)
}

// redacted returns a URL without its password, and without its options, which may contain one.
func redacted(text string) string {
	if u, err := url.Parse(text); err == nil {
		u.RawQuery = ""
		return u.Redacted()
	}
	scheme, rest, _ := strings.Cut(text, "://") // a URL of several hosts
	hosts, _, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], "?")
	return scheme + "://" + hosts
}

func openRedis(url string) (driver.Backend, error) {
	redis.SetLogger(quiet{}) // the command itself says once that the server can't be reached
	return redislock.Open(url), nil
}

func openEtcd(url string) (driver.Backend, error) { return etcdlock.Open(url), nil }

func openConsul(url string) (driver.Backend, error) { return consullock.Open(url), nil }

func openZooKeeper(url string) (driver.Backend, error) { return zklock.Open(url), nil }

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// process returns the process with this owner ID, or nil if the engine does not know it.
func (b *backend) process(ctx context.Context, id string) *driver.Process {
	noter, ok := b.Backend.(driver.Noter)
	uuid, _, _ := strings.Cut(id, ":")
	if !ok || uuid == "" {
		return nil
	}
	p, known := b.processes[uuid]
	if !known {
		text, _ := noter.Note(ctx, "process/"+uuid) // on an error the lock is shown without its process
		if text == "" || json.Unmarshal([]byte(text), &p) != nil {
			p = nil
		}
		if len(b.processes) >= manyProcesses {
			clear(b.processes)
		}
		b.processes[uuid] = p
	}
	return p
}

// manyProcesses bounds the processes that are remembered.
const manyProcesses = 10_000
