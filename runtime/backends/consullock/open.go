package consullock

import (
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Open is [New] for a client that it makes for the agent at a URL:
//
//	consul://host:8500?dc=paris&ns=shop&partition=eu
//	consuls://:token@host:8501                        by TLS, with an ACL token
//
// What the URL does not say is as api.DefaultConfig has it, from the environment. The
// Backend owns the client: its connections close when the last Locker on it does. Open
// does no I/O. What is wrong with the URL is the error of every call, and of Ping.
func Open(rawURL string, options ...Options) *Backend {
	c, err := configOf(rawURL)
	var client *api.Client
	if err == nil {
		client, err = api.NewClient(c)
	}
	b := New(client, options...)
	if err != nil {
		b.invalid = fmt.Errorf("%w: consullock.Open got a URL that can't be used: %w", driver.ErrInvalid, err)
		return b
	}
	b.closeIdle = c.Transport.CloseIdleConnections
	return b
}

func configOf(rawURL string) (*api.Config, error) {
	u, err := engine.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	c := api.DefaultConfig()
	switch u.Scheme {
	case "consul":
		c.Scheme = "http"
	case "consuls":
		c.Scheme = "https"
	default:
		return nil, fmt.Errorf("its scheme is %q, not consul or consuls", u.Scheme)
	}
	if u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("there is a path in it: %s", u.Path)
	}
	if u.Host != "" {
		c.Address = u.Host
		if u.Port() == "" {
			c.Address += ":8500"
		}
	}
	if token, ok := u.User.Password(); ok {
		c.Token = token
	}
	for name, values := range u.Query() {
		switch value := values[len(values)-1]; name {
		case "dc":
			c.Datacenter = value
		case "ns":
			c.Namespace = value
		case "partition":
			c.Partition = value
		default:
			return nil, fmt.Errorf("there is no option %q; have dc, ns, partition", name)
		}
	}
	return c, nil
}
