package zklock

import (
	"fmt"
	"path"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
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
	servers, err := o.applyURL(rawURL)
	if err != nil {
		b := New([]string{"none"})
		b.invalid = fmt.Errorf("%w: zklock.Open got a URL that can't be used: %w", driver.ErrInvalid, err)
		return b
	}
	return New(servers, o)
}

// applyURL sets what the URL says in o, and returns its servers.
func (o *Options) applyURL(rawURL string) (servers []string, err error) {
	u, servers, err := engine.ParseServers(rawURL, defaultPort)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "zk":
		return nil, fmt.Errorf("its scheme is %q, not zk", u.Scheme)
	case u.Path != "":
		if o.Root = "/" + u.Path; path.Clean(o.Root) != o.Root {
			return nil, fmt.Errorf("%s is no path of ZooKeeper's", o.Root)
		}
	}
	if u.User != nil {
		who := u.User.Username()
		if password, ok := u.User.Password(); ok {
			who += ":" + password
		}
		o.Auth = append(o.Auth[:len(o.Auth):len(o.Auth)], Auth{Scheme: "digest", Auth: []byte(who)})
	}
	return servers, nil
}
