package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// backend is an engine that the demo can run on.
type backend interface {
	// serve finds the engine at address, or starts one if address is empty. The front desk calls
	// it.
	serve(ctx context.Context, address string) (*engine, error)
	// open connects to an engine that is served. A worker calls it.
	open(address string) (b driver.Backend, closeClient func() error, err error)
}

// engine is the engine that the workers share.
type engine struct {
	name     string // "redis", for the report
	label    string // "Redis at 10.0.0.7:6379", without secrets
	backend  string // its name, for chooseBackend
	address  string // its address, for open
	alone    bool   // its locks work only within one process
	shutdown func()
	fault    *engineFault // what -kill does to the engine itself, or nil
}

const defaultBackend = "redis"

// enginePatience is how long an engine may take for its first answer.
const enginePatience = 5 * time.Second

// backends are the engines that the demo can use.
var backends = map[string]backend{
	defaultBackend: redisBackend{},
	"etcd":         etcdBackend{},
	"zookeeper":    zookeeperBackend{},
	"consul":       consulBackend{},
	"mysql":        sqlBackend{mysqlDatabase},
	"postgres":     sqlBackend{postgresDatabase},
	"sqlite":       sqlBackend{sqliteDatabase},
	"memory":       memoryBackend{},
	"quorum":       quorumBackend{},
	"failover":     failoverBackend{},
}

func backendNames() string {
	return strings.Join(slices.Sorted(maps.Keys(backends)), ", ")
}

func chooseBackend(name string) (backend, error) {
	if b, ok := backends[name]; ok {
		return b, nil
	}
	return nil, usageError{fmt.Errorf("-backend %q: there is %s", name, backendNames())}
}

// testServers are the addresses of the project's test servers, if they run.
var testServers = map[string]string{
	"etcd":      "LOCKGEN_TEST_ETCD",
	"zookeeper": "LOCKGEN_TEST_ZOOKEEPER",
	"consul":    "LOCKGEN_TEST_CONSUL",
	"mysql":     "LOCKGEN_TEST_MYSQL",
	"postgres":  "LOCKGEN_TEST_POSTGRES",
}

// addressOf returns the address of the engine if the command line does not give one.
func addressOf(backend, given string) (string, error) {
	env, needed := testServers[backend]
	switch {
	case given != "" || !needed:
		return given, nil
	case os.Getenv(env) != "":
		return os.Getenv(env), nil
	}
	return "", usageError{fmt.Errorf("-backend %s needs a server: say where it is by -address, or have one started: "+
		"make demo BACKEND=%s", backend, backend)}
}

// hostPort checks an address of the form host:port.
func hostPort(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return usageError{fmt.Errorf("-address %q: want HOST:PORT", address)}
	}
	return nil
}

// tryOut takes a lock and frees it, so that a problem with an engine shows before the sale begins.
func tryOut(ctx context.Context, b backend, address string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	engine, closeClient, err := b.open(address)
	if err != nil {
		return err
	}
	locker := lock.New(engine, nil)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		err = errors.Join(err, locker.Close(ctx), closeClient())
	}()
	return locker.Do(ctx, nil, fmt.Sprintf("seckill:try-out:%d", os.Getpid()), func(context.Context) error { return nil })
}

// server returns an engine that runs at address already.
func server(ctx context.Context, b backend, name, title, address string) (*engine, error) {
	if err := tryOut(ctx, b, address); err != nil {
		return nil, fmt.Errorf("no usable %s at %s: %w", title, address, err)
	}
	return &engine{
		name: name, label: title + " at " + address, backend: name, address: address,
		shutdown: func() {},
	}, nil
}
