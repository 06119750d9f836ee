package redislock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// TLS and a user with the least rights work through the caller's client.
func TestTLSAndLeastRights(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	server, overTLS := testserver.StartRedisTLS(t, cert)
	command(t, server.Addr(), append([]string{"ACL", "SETUSER", "alice", "on", ">secret"}, documentedRights(t)...)...)
	login := func(o *redis.Options) {
		o.Username, o.Password, o.TLSConfig = "alice", "secret", cert.Client()
	}
	one, two := newLocker(t, overTLS, login), newLocker(t, overTLS, login)
	key := "seckill:" + newKey(t)
	sendMutexCommands(t, server.Addr(), one, two, key)

	// A connection that the server has closed while it was idle does not cost the lock.
	command(t, server.Addr(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	_, held := acquire(t, one, try(), key)
	command(t, server.Addr(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	mustRelease(t, held)
	if exists(t, server.Addr(), key) {
		t.Error("the lock was not released")
	}
	if refused := denials(t, server.Addr()); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// A client that does not trust the server, has a wrong password, or speaks no TLS
// gets an error at once, which says that no lock was taken.
func TestTLSRefused(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	server, overTLS := testserver.StartRedisTLS(t, cert)
	command(t, server.Addr(), append([]string{"ACL", "SETUSER", "alice", "on", ">secret"}, documentedRights(t)...)...)
	for name, login := range map[string]func(*redis.Options){
		"another authority": func(o *redis.Options) { o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()} },
		"a wrong password": func(o *redis.Options) {
			o.Username, o.Password, o.TLSConfig = "alice", "guess", cert.Client()
		},
		"no TLS": func(*redis.Options) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refused(t, newLocker(t, overTLS, login), nil, "seckill:lock")
			wantIs(t, err, lock.ErrUnavailable)
			wantIsNot(t, err, lock.ErrIndeterminate, lock.ErrNotAcquired)
			t.Log(err)
		})
	}
}

// Listing locks with TLS at a plain port, or without TLS at a port for TLS, gives an error that says so.
func TestListSaysTLS(t *testing.T) {
	t.Parallel()
	_, overTLS := testserver.StartRedisTLS(t, testserver.NewCertificate(t))
	for url, is := range map[string]struct {
		want  string
		limit time.Duration // a plain port does not answer
	}{
		"rediss://" + testserver.StartRedis(t).Addr(): {"redis:// and not rediss://", time.Second},
		"redis://" + overTLS:                          {"rediss:// and not redis://", soon},
	} {
		b, want := Open(url), is.want
		t.Cleanup(func() { _ = b.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), is.limit)
		defer cancel()
		for _, err := range b.Locks(ctx, "*") {
			require.ErrorContains(t, err, want)
		}
		_, err := b.Lock(ctx, "key")
		require.ErrorContains(t, err, want)
	}
}

// A silent server that a Sentinel names is not dialed for ever, although go-redis's dialer for TLS ignores
// contexts.
func TestSilentServerOfASentinel(t *testing.T) {
	t.Parallel()
	cert, silent := testserver.NewCertificate(t), listen(t)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if conn, err := silent.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, conn) // until the client gives it up
			_ = conn.Close()
		}
	}()
	pair, err := tls.LoadX509KeyPair(cert.CertFile, cert.KeyFile)
	require.NoError(t, err)
	host, port, _ := net.SplitHostPort(silent.Addr().String())
	sentinel := stubOn(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{pair}}), func(args []string) string {
		if len(args) < 2 || args[1] != "get-master-addr-by-name" {
			return unknownCommand
		}
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	})
	l := lockerOn(t, Open(&redis.UniversalOptions{Addrs: []string{sentinel}, MasterName: "any", TLSConfig: cert.Client()}))
	t.Cleanup(func() { _ = silent.Close() })
	wantIs(t, refused(t, l, try(), newKey(t)), lock.ErrUnavailable)
	receive(t, "the end of the dial", gone)
}
