package etcdlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// dialTimeout is how long Open takes at most to log in.
const dialTimeout = 5 * time.Second

// Open is [New] for a client that it makes for the servers of a URL:
//
//	etcd://user:password@host:2379,host2:2379
//	etcds://host:2379                            by TLS
//
// The Backend owns the client: it closes when the last Locker on it does. The client logs
// nothing, because each call says what went wrong. Open does no I/O but with a user, as
// whom it logs in, for 5 s at most. What is wrong with the URL, or with that, is the error
// of every call, and of Ping.
func Open(rawURL string, options ...Options) *Backend {
	c, err := configOf(rawURL)
	if err != nil {
		b := New(nil, options...)
		b.invalid = fmt.Errorf("%w: etcdlock.Open got a URL that can't be used: %w", driver.ErrInvalid, err)
		return b
	}
	client, err := clientv3.New(*c)
	b := New(client, options...)
	if errors.Is(err, context.DeadlineExceeded) { // which says nothing of the login
		err = fmt.Errorf("no answer to the login within %v", dialTimeout)
	}
	if err != nil {
		b.invalid = fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
		return b
	}
	b.owned = client
	return b
}

func configOf(rawURL string) (*clientv3.Config, error) {
	u, servers, err := engine.ParseServers(rawURL, "2379")
	if err != nil {
		return nil, err
	}
	c := &clientv3.Config{Endpoints: servers, DialTimeout: dialTimeout, Logger: zap.NewNop()}
	switch u.Scheme {
	case "etcd":
	case "etcds":
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("its scheme is %q, not etcd or etcds", u.Scheme)
	}
	if u.Path != "" {
		return nil, fmt.Errorf("there is a path in it: %s", u.Path)
	}
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
	}
	return c, nil
}
