package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// RedissonPrefix is the prefix of every key that the Java program locks.
const RedissonPrefix = "interop:"

// Redisson is Redisson's RLock, in a JVM. It is not in All, because it locks one key
// at a time and takes part only together with ours.
var Redisson = &Peer{
	Name:  "redisson",
	About: "Redisson 4.7.0, RLock with its watchdog; gets its orders over a pipe",
	Open: func(addr string, ttl time.Duration) (Client, error) {
		return openRedisson(addr, ttl)
	},
}

type redissonClient struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string
}

func openRedisson(addr string, ttl time.Duration) (*redissonClient, error) {
	cmd := java([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1"}, "RedissonPeer", strconv.FormatInt(ttl.Milliseconds(), 10), addr)
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &redissonClient{cmd, in, make(chan string, 4)}
	go func() {
		defer close(c.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.answers <- lines.Text()
		}
	}()
	return c, c.expect(context.Background(), "ready")
}

func (c *redissonClient) expect(ctx context.Context, want string) error {
	select {
	case got, ok := <-c.answers:
		if !ok || got != want {
			return fmt.Errorf("redisson: answered %q, not %q", got, want)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *redissonClient) ask(ctx context.Context, line, want string) error {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return err
	}
	return c.expect(ctx, want)
}

func (c *redissonClient) Lock(ctx context.Context, key string) (Lease, error) {
	name, ok := strings.CutPrefix(key, RedissonPrefix)
	if !ok {
		return nil, fmt.Errorf("redisson: %q does not begin with %s", key, RedissonPrefix)
	}
	if err := c.ask(ctx, "lock "+name, "locked"); err != nil {
		return nil, err
	}
	return redissonLease{c}, nil
}

func (c *redissonClient) Close() error {
	kill := time.AfterFunc(2*time.Second, func() { _ = c.cmd.Process.Kill() }) // in case a call still waits
	defer kill.Stop()
	_ = c.in.Close()
	for range c.answers { // until the process has ended
	}
	return c.cmd.Wait()
}

type redissonLease struct{ client *redissonClient }

func (l redissonLease) Unlock(ctx context.Context) error {
	return l.client.ask(ctx, "unlock", "unlocked")
}

func (l redissonLease) Token() uint64 { return 0 }
