package testserver

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var redisServer = &Server{
	Name:    "redis",
	Env:     "LOCKGEN_TEST_REDIS",
	Ports:   1,
	Find:    func() (string, error) { return findBinary("redis-server", "valkey-server") },
	Command: redisCommand,
	Probe:   probeRedis,
}

// redisTLSServer is like redisServer, with a second port for TLS.
var redisTLSServer = &Server{
	Name:  "redis",
	Env:   "LOCKGEN_TEST_REDIS",
	Ports: 2,
	Find:  redisServer.Find,
	Command: func(ctx context.Context, l Launch) (*exec.Cmd, error) {
		l.Args = append([]string{"--tls-port", strconv.Itoa(l.Ports[1])}, l.Args...)
		return redisCommand(ctx, l)
	},
	Probe: probeRedis,
}

var sharedRedis = &shared{server: redisServer}

// Redis returns the address of the Redis that all tests share. Use keys that
// carry the test's name, and change nothing that other tests would see.
func Redis(t testing.TB) string {
	t.Helper()
	return sharedRedis.addr(t)
}

// StartRedis starts a private Redis. The args follow the defaults on
// the command line, one word each: "--maxmemory", "1mb", or
// "--user", "alice", "on", ">pw", "~*", "+@all", or "--replicaof", host, port.
func StartRedis(t testing.TB, args ...string) *Instance {
	t.Helper()
	return startPrivate(t, redisServer, args)
}

// StartRedisTLS starts a private Redis that has the certificate c. The address overTLS
// uses TLS. The address of the instance does not; it is for the test's own commands.
func StartRedisTLS(t testing.TB, c *Certificate, args ...string) (i *Instance, overTLS string) {
	t.Helper()
	i = startPrivate(t, redisTLSServer, append([]string{
		"--tls-cert-file", c.CertFile, "--tls-key-file", c.KeyFile, "--tls-auth-clients", "no",
	}, args...))
	return i, net.JoinHostPort("127.0.0.1", strconv.Itoa(i.place.launch.Ports[1]))
}

func redisCommand(_ context.Context, l Launch) (*exec.Cmd, error) {
	// Remove what SAVE or a replication has left, since a restart begins with empty memory.
	if err := os.RemoveAll(filepath.Join(l.Dir, "dump.rdb")); err != nil {
		return nil, err
	}
	args := append([]string{
		"--port", l.Port(),
		"--bind", "127.0.0.1",
		"--dir", l.Dir,
		"--save", "",
		"--appendonly", "no",
		"--repl-diskless-sync-delay", "0", // the default makes a replica wait 5 s
	}, l.Args...)
	return exec.Command(l.Bin, args...), nil
}

// probeRedis returns nil if the server answers PING or refuses it for lack of a password.
// A server that is still loading its data is not ready.
func probeRedis(ctx context.Context, addr string) error {
	_, err := Command(ctx, addr, "PING")
	var refused ServerError
	if errors.As(err, &refused) && !strings.HasPrefix(string(refused), "LOADING") {
		return nil
	}
	return err
}
