package interop

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
)

// waitDelay is how long after its call a client of Consul is taken to wait, since the agent
// does not list its waiters.
const waitDelay = 20 * time.Millisecond

// encodedSpace is a character that is not allowed in a key at Consul's /v1/kv, which these
// clients use. It is allowed at /v1/txn, which ours uses.
const encodedSpace = " "

// newConsul returns a client whose connections end with the test. After the test it opens no new
// ones: an api.Lock watches its key for a moment after the release, so its connection may still be
// in use, and package http retries when that connection is closed.
func newConsul(t *testing.T, addr string) *api.Client {
	config := api.DefaultConfig()
	config.Address = addr
	var mu sync.Mutex
	var dialed []net.Conn
	over := false
	dial := config.Transport.DialContext
	config.Transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		if over {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		dialed = append(dialed, conn)
		return conn, nil
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		for _, conn := range dialed {
			_ = conn.Close()
		}
	})
	client, err := api.NewClient(config)
	require.NoError(t, err)
	return client
}

func TestConsulLockAPI(t *testing.T) {
	addr := testserver.Consul(t)
	theirs := newConsul(t, addr)
	session, _, err := theirs.Session().Create(&api.SessionEntry{TTL: "60s"}, nil)
	require.NoError(t, err)
	p := &pair{
		peer:     "Consul api.Lock",
		theirs:   &consulAPI{client: theirs, session: session},
		ours:     newLockgen(t, consullock.New(newConsul(t, addr))),
		sections: 1000,
		refused:  encodedSpace,
	}
	p.test(t)
	_, err = theirs.Session().Destroy(session, nil)
	require.NoError(t, err)
}

type consulAPI struct {
	client  *api.Client
	session string
	held    *api.Lock
	wait    wait
}

func (c *consulAPI) lock(ctx context.Context, name string) error {
	_, err := c.take(ctx, &api.LockOptions{}, name)
	return err
}

func (c *consulAPI) try(ctx context.Context, name string) (bool, error) {
	return c.take(ctx, &api.LockOptions{LockTryOnce: true, LockWaitTime: waitDelay}, name)
}

func (c *consulAPI) take(ctx context.Context, options *api.LockOptions, name string) (in bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if options.Key, err = SectionRunKey(name); err != nil {
		return false, err
	}
	options.Session = c.session
	c.wait.begin()
	if c.held, err = c.client.LockOpts(options); err != nil {
		return false, err
	}
	lost, err := c.held.Lock(ctx.Done())
	if lost == nil {
		c.wait.end()
	}
	return lost != nil, err
}

func (c *consulAPI) unlock(context.Context) error {
	c.wait.end()
	return c.held.Unlock()
}

func (c *consulAPI) waits(context.Context, string) (bool, error) {
	return c.wait.lasted(waitDelay), nil
}

func TestConsulLock(t *testing.T) {
	addr := testserver.Consul(t)
	p := &pair{
		peer:     "consul lock (a process each)",
		theirs:   &consul{t: t, addr: addr, binary: findConsul(t)},
		ours:     newFolder(t, consullock.New(newConsul(t, addr))),
		sections: 50,
		refused:  encodedSpace,
	}
	p.test(t)
}

// findConsul returns the path of consul, from PATH or from where scripts/build-consul puts it.
func findConsul(t *testing.T) string {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	built, err := filepath.Glob(filepath.Join(cache, "lockgen", "consul-*.*.*"))
	require.NoError(t, err)
	if len(built) > 0 {
		return built[0]
	}
	return "consul"
}

// consul locks by the command `consul lock`: one process for each lock, which runs a shell while it holds the lock.
type consul struct {
	t      *testing.T
	addr   string
	binary string
	held   *command
	wait   wait // begins when the process prints that it asks for the lock
}

const locked = "LOCKED"

func (c *consul) start(name string, options ...string) (err error) {
	key, err := SectionRunKey(name)
	if err != nil {
		return err
	}
	argv := append([]string{c.binary, "lock", "-http-addr", c.addr, "-pass-stdin", "-verbose"}, options...)
	c.held, err = startCommand(c.t, nil, append(argv, key, "echo "+locked+"; read line")...)
	return err
}

// enter reads the process's output until it holds the lock or ends.
func (c *consul) enter(ctx context.Context) error {
	for {
		line, err := c.held.next(ctx)
		switch {
		case err != nil:
			return err
		case line == locked:
			return nil
		case strings.HasPrefix(line, "Attempting lock acquisition"):
			c.wait.begin()
		}
	}
}

func (c *consul) lock(ctx context.Context, name string) error {
	if err := c.start(name); err != nil {
		return err
	}
	return c.enter(ctx)
}

func (c *consul) try(ctx context.Context, name string) (bool, error) {
	if err := c.start(name, "-try", "50ms"); err != nil {
		return false, err
	}
	if err := c.enter(ctx); err == errEnded {
		c.wait.end()
		_ = c.held.wait(ctx) // its exit status is not 0
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func (c *consul) unlock(ctx context.Context) error {
	c.wait.end()
	c.held.say("")
	return c.held.wait(ctx)
}

func (c *consul) waits(context.Context, string) (bool, error) {
	return c.wait.lasted(waitDelay), nil
}
