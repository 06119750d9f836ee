package redislock

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// wantAdvice checks that an acquire fails, and that its error has each of the words.
func wantAdvice(t *testing.T, l *lock.Locker, words ...string) {
	t.Helper()
	for _, p := range []*lock.Policy{nil, try()} {
		err := refused(t, l, p, newKey(t))
		wantIs(t, err, lock.ErrUnavailable)
		for _, word := range words {
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("the error does not say %q: %v", word, err)
			}
		}
	}
}

// The error for a new user's common mistake has the server's address and says what to do.
func TestFirstMistakes(t *testing.T) {
	t.Parallel()
	cert := testserver.NewCertificate(t)
	plain, overTLS := testserver.StartRedisTLS(t, cert)
	server := testserver.StartRedis(t, "--requirepass", "secret").Addr()
	password := func(p string) func(*redis.Options) { return func(o *redis.Options) { o.Password = p } }
	t.Run("no password", func(t *testing.T) {
		wantAdvice(t, newLocker(t, server), server, "NOAUTH", "set Username and Password")
	})
	t.Run("a wrong password", func(t *testing.T) {
		wantAdvice(t, newLocker(t, server, password("guess")), server, "WRONGPASS", "check Username and Password")
	})
	t.Run("the password", func(t *testing.T) { warm(t, newLocker(t, server, password("secret"))) })
	t.Run("TLS on a plain port", func(t *testing.T) {
		l := newLocker(t, plain.Addr(), func(o *redis.Options) {
			o.TLSConfig, o.DialTimeout = &tls.Config{InsecureSkipVerify: true}, 200*time.Millisecond
		})
		wantAdvice(t, l, plain.Addr(), "the client speaks TLS")
	})
	t.Run("plain on a TLS port", func(t *testing.T) { wantAdvice(t, newLocker(t, overTLS), overTLS, "set TLSConfig") })
	t.Run("nobody there", func(t *testing.T) { wantAdvice(t, newLocker(t, "127.0.0.1:1"), "127.0.0.1:1") })
}

// A plain client that is connected to a node of a Cluster gets an error from the first connection, whatever the key.
func testClusterPlainClient(t *testing.T, c *testserver.Cluster) {
	for node, keys := range keysAt(t, c, 1) {
		l := newLocker(t, node.Addr())
		for _, p := range []*lock.Policy{nil, try()} {
			err := refused(t, l, p, keys[0])
			wantIs(t, err, lock.ErrUnavailable)
			if err != nil && (!strings.Contains(err.Error(), "redis.NewClusterClient") || !strings.Contains(err.Error(), node.Addr())) {
				t.Error(err)
			}
		}
	}
}

// Servers does not return the name that go-redis uses for a server that Sentinels choose: it is no address.
func TestServersBehindSentinels(t *testing.T) {
	t.Parallel()
	o := &redis.FailoverOptions{MasterName: "shop", SentinelAddrs: []string{"127.0.0.1:1"}}
	client := redis.NewFailoverClient(o)
	defer client.Close()
	made, opened := New(client), Open("redis://127.0.0.1:1?master_name=shop")
	if all := made.Servers(); len(all) != 0 {
		t.Errorf("New: %v", all)
	}
	if all := opened.Servers(); !slices.Equal(all, o.SentinelAddrs) {
		t.Errorf("Open: %v", all)
	}
	for _, b := range []*Backend{made, opened} {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Without the right to use INFO, the first key of another node gives the error.
func TestAKeyOfAnotherNode(t *testing.T) {
	t.Parallel()
	refuse := always("-MOVED 7 127.0.0.1:1\r\n")
	addr := stub(t, scripted(refuse, refuse, refuse))
	wantAdvice(t, newLocker(t, addr), addr, "redis.NewClusterClient")
}

// Locks refuses to list the locks of only one node.
func TestListRefusesANodeOfACluster(t *testing.T) {
	t.Parallel()
	node := testserver.StartCluster(t).Nodes()[0]
	b := Open("redis://" + node.Addr())
	t.Cleanup(func() { _ = b.Close() })
	var all []error
	for _, err := range b.Locks(t.Context(), "*") {
		all = append(all, err)
	}
	if len(all) != 1 || all[0] == nil || !strings.Contains(all[0].Error(), "?cluster=true") {
		t.Errorf("%v", all)
	}
}
