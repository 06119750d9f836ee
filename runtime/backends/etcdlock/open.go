package etcdlock

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/runtime/driver"
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
	if err != nil {
		b.invalid = fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
		return b
	}
	b.owned = client
	return b
}

func configOf(rawURL string) (*clientv3.Config, error) {
	// Not url.Parse: it knows one host. A password stays out of the errors.
	scheme, rest, _ := strings.Cut(rawURL, "://")
	c := &clientv3.Config{DialTimeout: dialTimeout, Logger: zap.NewNop()}
	switch scheme {
	case "etcd":
	case "etcds":
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("its scheme is %q, not etcd or etcds", scheme)
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var errs [2]error
		c.Username, errs[0] = url.PathUnescape(user)
		c.Password, errs[1] = url.PathUnescape(password)
		if errs[0] != nil || errs[1] != nil {
			return nil, fmt.Errorf("its user or password is not well encoded")
		}
		rest = rest[at+1:]
	}
	hosts, more, _ := strings.Cut(rest, "/")
	if more != "" || strings.ContainsAny(hosts, "?#") {
		return nil, fmt.Errorf("only host:port, parted by commas, may follow, not %q", rest)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, fmt.Errorf("a host is missing")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "2379")
		}
		c.Endpoints = append(c.Endpoints, host)
	}
	return c, nil
}
