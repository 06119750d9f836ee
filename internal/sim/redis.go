package sim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
	"github.com/lockgen/lockgen/runtime/backends/redislock"

	"github.com/lockgen/lockgen/internal/sim/differential"
	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// Redis is a miniredis in virtual time, with the faults of a server.
type Redis struct {
	mini *miniredis.Miniredis

	mu      sync.Mutex // guards the rest
	ahead   time.Duration
	down    bool
	stops   int           // number of stops
	running chan struct{} // closed while it runs; open while it is paused
	conns   map[*conn]struct{}
	number  int
	rules   []*rule
	outOf   bool            // out of memory
	denied  map[string]bool // forbidden commands, in upper case
	refusal string          // the answer to every command, or ""
	wrote   bool            // the running script has written
	parted  map[int]bool    // processes whose connections are refused
	member  int             // number of the server, if it is a member of a quorum
	began   time.Time       // when the member started
	lives   int             // number of starts of the member; 0 if the server is not a member
}

// NewRedis starts an empty server.
func NewRedis() *Redis {
	r := &Redis{
		mini:    miniredis.NewMiniRedis(),
		running: make(chan struct{}),
		conns:   map[*conn]struct{}{},
		denied:  map[string]bool{},
		parted:  map[int]bool{},
	}
	close(r.running)
	pipe, err := r.mini.Dial() // starts the server
	if err != nil {
		panic(err)
	}
	_ = pipe.Close()
	r.mini.SetTime(r.now())
	r.mini.ClockTTL(true)
	differential.Repair(r.mini, r.before)
	return r
}

// now returns the time of the server's clock.
func (r *Redis) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Add(r.ahead)
}

// tick sets the time of miniredis.
func (r *Redis) tick() { r.mini.SetTime(r.now()) }

// Client returns a go-redis client that reaches r over path.
func (r *Redis) Client(path *vnet.Path, timeout time.Duration) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "sim:6379", ReadTimeout: timeout, WriteTimeout: timeout, PoolSize: busyConns, PipelinePoolSize: -1, MaxRetries: -1,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   func(ctx context.Context, _, _ string) (net.Conn, error) { return path.Dial(ctx, r.accept) },
	})
}

// Connect returns a redislock for one process.
func (r *Redis) Connect(path *vnet.Path, timeout time.Duration) client.Backend {
	callers := r.Client(path, timeout)
	ctx, cancel := context.WithCancel(context.Background())
	keepBusy(ctx, callers)
	return &closing{redislock.New(callers), callers, cancel}
}

// busyConns is the number of connections of the caller's client. All are busy with other work.
const busyConns = 2

// keepBusy keeps the connections of the caller's client busy until ctx ends, as business traffic
// may. Locks must not wait for these connections.
func keepBusy(ctx context.Context, c *redis.Client) {
	for range busyConns {
		go func() {
			for ctx.Err() == nil {
				_ = c.BLPop(ctx, time.Second, "nobody:pushes").Err()
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
}

// closing is a redislock that also closes the caller's client, from which it made its own.
type closing struct {
	*redislock.Backend
	callers *redis.Client
	stop    context.CancelFunc // of keepBusy
}

// Close implements [driver.Backend].
func (c *closing) Close() error {
	c.stop()
	return errors.Join(c.Backend.Close(), c.callers.Close())
}

// accept accepts a connection that arrives, unless the server is down.
func (r *Redis) accept(end *vnet.End, flow *vnet.Flow) bool {
	r.mu.Lock()
	if r.down || r.isParted(flow) {
		r.mu.Unlock()
		return false
	}
	r.number++
	c := &conn{End: end, redis: r, flow: flow, number: r.number, in: bufio.NewReader(end), idle: make(chan struct{}, 1), gone: make(chan struct{})}
	r.conns[c] = struct{}{}
	r.mu.Unlock()
	r.mini.Server().ServeConn(c)
	return true
}

// Close ends the server and its connections.
func (r *Redis) Close() {
	r.mini.Close()
}

// Pause stops the server as SIGSTOP does: its clock continues.
func (r *Redis) Pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isClosed(r.running) {
		r.running = make(chan struct{})
	}
}

// Resume ends Pause.
func (r *Redis) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !isClosed(r.running) {
		close(r.running)
	}
}

// started returns a number that is different for each run of the server.
func (r *Redis) started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stops
}

// await waits until the server runs.
func (r *Redis) await() {
	for {
		r.mu.Lock()
		running := r.running
		r.mu.Unlock()
		if isClosed(running) {
			return
		}
		<-running
	}
}

// Stop kills the server.
func (r *Redis) Stop() {
	r.mu.Lock()
	r.down = true
	r.stops++
	r.mu.Unlock()
	r.cut(func(*conn) bool { return true })
}

// Start starts the server again, with its data or empty. It knows no scripts.
func (r *Redis) Start(empty bool) {
	r.mu.Lock()
	r.down = false
	if r.lives > 0 {
		r.began, r.lives = time.Now(), r.lives+1
	}
	r.mu.Unlock()
	if empty {
		r.Do("FLUSHALL")
	}
	r.Do("SCRIPT", "FLUSH")
}

// Jump sets the server's clock forward by d, or back if d is negative.
func (r *Redis) Jump(d time.Duration) {
	r.tick()
	r.mu.Lock()
	r.ahead += d
	r.mu.Unlock()
	r.tick()
	if d >= 0 {
		return
	}
	// On Redis an expiry is an instant, so keys with an expiry last longer now.
	for _, key := range r.mini.Keys() {
		if ttl := r.mini.TTL(key); ttl > 0 {
			r.mini.SetTTL(key, ttl-d)
		}
	}
}

// Free deletes a lock as Redisson's forceUnlock does.
func (r *Redis) Free(key string) {
	r.Do("DEL", key)
	r.Do("PUBLISH", "redisson_lock__channel:{"+key+"}", "0")
}

// Evict deletes all keys with this prefix.
func (r *Redis) Evict(prefix string) {
	r.tick()
	for _, key := range r.mini.Keys() {
		if strings.HasPrefix(key, prefix) {
			r.mini.Del(key)
		}
	}
}

// Do runs a command as an operator does, and returns its answer.
func (r *Redis) Do(args ...string) (any, error) {
	r.tick()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	r.mini.Server().Dispatch(server.NewPeer(w), args)
	_ = w.Flush()
	return server.ParseReply(bufio.NewReader(&out))
}

// cut resets the connections that match, in the order in which they were made.
func (r *Redis) cut(match func(*conn) bool) {
	r.mu.Lock()
	var some []*conn
	for c := range r.conns {
		if match(c) {
			some = append(some, c)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(some, func(a, b *conn) int { return a.number - b.number })
	for _, c := range some {
		c.flow.Reset()
		c.Fail(io.EOF)
	}
}

// Snapshot returns all keys.
func (r *Redis) Snapshot() (keys []history.KeyState) {
	r.tick()
	for _, name := range r.mini.Keys() {
		k := history.KeyState{Name: name, Type: r.mini.Type(name), PTTL: -1}
		if ttl := r.mini.TTL(name); ttl > 0 {
			k.PTTL = ttl.Milliseconds()
		}
		if k.Type == "hash" {
			k.Fields = map[string]string{}
			fields, _ := r.mini.HKeys(name)
			for _, f := range fields {
				k.Fields[f] = r.mini.HGet(name, f)
			}
		} else if history.IsKinded(name) {
			k.Value, _ = r.mini.Get(name)
			k.Now = r.now().UnixMicro()
		}
		keys = append(keys, k)
	}
	return keys
}

// Remains describes data that should not be left at the server after all clients have gone, or
// returns "".
func (r *Redis) Remains(locks []string) string {
	for _, k := range r.Snapshot() {
		switch {
		case strings.Contains(k.Name, agreed): // stays
		case slices.Contains(locks, k.Name):
			return fmt.Sprintf("the lock %s is left: %v, pttl %d", k.Name, k.Fields, k.PTTL)
		case history.IsKinded(k.Name) && k.PTTL > 0:
			if inside := k.Inside(); inside != "" {
				return k.Name + ": " + inside
			}
		case k.PTTL < 0:
			return fmt.Sprintf("%s is left without an expiry", k.Name)
		case !strings.HasPrefix(k.Name, "lockgen:"):
			return fmt.Sprintf("%s is left, whose name is not one of ours", k.Name)
		}
	}
	if channels := r.mini.PubSubChannels(""); len(channels) > 0 {
		return fmt.Sprintf("still subscribed to: %v", channels)
	}
	return ""
}
