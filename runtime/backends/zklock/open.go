package zklock

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Open is [New] for the servers of a URL:
//
//	zk://user:password@host:2181,host2:2181/path
//
// The user and the password are added as an identity of the scheme "digest"; the path is
// [Options].Root. It makes its own connections, as New does, which close when the last
// Locker on the Backend does. What is wrong with the URL is the error of every call, and
// of Ping.
func Open(rawURL string, options ...Options) *Backend {
	var o Options
	for _, o = range options {
	}
	servers, err := o.from(rawURL)
	if err != nil {
		b := New([]string{"none"})
		b.invalid = fmt.Errorf("%w: zklock.Open got a URL that can't be used: %w", driver.ErrInvalid, err)
		return b
	}
	return New(servers, o)
}

// from has o as the URL says, and returns its servers.
func (o *Options) from(rawURL string) (servers []string, err error) {
	scheme, rest, _ := strings.Cut(rawURL, "://") // url.Parse knows one host
	if scheme != "zk" {
		return nil, fmt.Errorf("its scheme is %q, not zk", scheme)
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		identity, err := url.PathUnescape(rest[:at])
		if err != nil {
			return nil, errors.New("its user or password is not well encoded")
		}
		o.Auth = append(o.Auth[:len(o.Auth):len(o.Auth)], Auth{Scheme: "digest", Auth: []byte(identity)})
		rest = rest[at+1:]
	}
	hosts, root, _ := strings.Cut(rest, "/")
	if root = strings.TrimSuffix(root, "/"); root != "" {
		o.Root = "/" + root
	}
	if strings.ContainsAny(rest, "?#") || root != "" && path.Clean(o.Root) != o.Root {
		return nil, fmt.Errorf("only host:port, parted by commas, and a path may follow, not %q", rest)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, errors.New("a host is missing")
		}
		servers = append(servers, host)
	}
	return servers, nil
}
