package enginetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	ttl     = 1200 * time.Millisecond
	longest = 1500 * time.Millisecond
	keys    = 2
)

// quiet keeps go-redis from printing each connection that a test breaks.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(quiet{}) }

// tries returns how many locks to take: LOCKGEN_QUORUM, or 60 if it is not set.
func tries(t *testing.T) int {
	text := os.Getenv("LOCKGEN_QUORUM")
	if text == "" {
		return 60
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LOCKGEN_QUORUM=%q: it must be a number of tries", text)
	}
	return n
}

// members are the servers of the quorum.
type members struct{ redis, etcd, postgres *testserver.Instance }

// start starts the servers.
func start(t *testing.T) (m members) {
	// Without synchronous_commit a restart may lose a lock that was granted.
	m.postgres = testserver.StartPostgres(t, "-c", "synchronous_commit=on")
	m.etcd = testserver.StartEtcd(t)
	m.redis = testserver.StartRedis(t)
	m.migrate(t)
	return m
}

func (m members) migrate(t *testing.T) {
	locks := m.table(t)
	if err := locks.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
}

// table returns the PostgreSQL as a member.
func (m members) table(t *testing.T) *sqllock.Backend {
	db, err := sql.Open("pgx", "postgres://lockgen@"+m.postgres.Addr()+"/postgres?sslmode=disable&connect_timeout=5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	locks, err := sqllock.New(db)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// join returns the Locker of one process.
func (m members) join(t *testing.T) *lock.Locker {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{m.etcd.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	l := lock.New(quorum.New(map[string]driver.Backend{
		"redis":    redislock.Open(&redis.UniversalOptions{Addrs: []string{m.redis.Addr()}}),
		"etcd":     etcdlock.New(etcd),
		"postgres": m.table(t),
	}, quorum.Options{LongestTTL: longest, Timeout: 500 * time.Millisecond}), nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// workload checks that one call is inside at a time, and that tokens rise.
type workload struct {
	t    *testing.T
	want int
	done chan struct{} // closed when there were want holds

	mu     sync.Mutex
	inside map[string]context.Context
	tokens map[string]uint64
	holds  int
	failed int
	faults int
}

// takeLocks takes locks until there were enough holds.
func (s *workload) takeLocks(l *lock.Locker) {
	for {
		select {
		case <-s.done:
			return
		default:
		}
		key := fmt.Sprintf("key %d", rand.N(keys))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := l.Do(ctx, &lock.Policy{TTL: ttl}, key, func(ctx context.Context) error {
			s.enter(ctx, key)
			stays := rand.N(10 * time.Millisecond)
			if rand.N(40) == 0 {
				stays = rand.N(2 * ttl) // long enough for a renewal
			}
			select {
			case <-time.After(stays):
			case <-ctx.Done():
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.inside[key] == ctx {
				delete(s.inside, key)
			}
			return nil
		})
		cancel()
		if err != nil {
			s.mu.Lock()
			s.failed++
			s.mu.Unlock()
		}
	}
}

// enter records that ctx is inside. An earlier holder may still be inside only if its lease has ended.
func (s *workload) enter(ctx context.Context, key string) {
	token, _ := lock.Token(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock.Check(ctx) != nil {
		return
	}
	if other := s.inside[key]; other != nil && lock.Check(other) == nil {
		s.t.Errorf("%s: two are inside at the same time", key)
	}
	if token <= s.tokens[key] {
		s.t.Errorf("%s: token %d after token %d", key, token, s.tokens[key])
	}
	s.inside[key], s.tokens[key] = ctx, token
	if s.holds++; s.holds == s.want {
		close(s.done)
	}
}

// injectFaults kills, stops or restarts one member after the other. The Redis comes back empty, the
// others with all that they have written.
func (s *workload) injectFaults(m members) {
	for i := 0; ; i++ {
		wait := 200 * time.Millisecond
		switch i % 6 {
		case 0:
			m.redis.Restart()
			wait += longest + time.Second // until it votes again; Redis reports its age in whole seconds
		case 1:
			m.etcd.Stop()
			s.pause(ttl)
			m.etcd.Cont()
		case 2:
			m.postgres.Restart()
		case 3:
			m.redis.Stop()
			s.pause(ttl / 2)
			m.redis.Cont()
		case 4:
			m.etcd.Kill()
			s.pause(ttl / 2)
			m.etcd.Restart()
		case 5:
			m.postgres.Stop()
			s.pause(ttl)
			m.postgres.Cont()
		}
		s.mu.Lock()
		s.faults++
		s.mu.Unlock()
		if !s.pause(wait) {
			return
		}
	}
}

// pause waits for d, and reports whether locks are still taken then.
func (s *workload) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.done:
		return false
	}
}

// Two members that use one database are refused.
func TestOneDatabaseTwice(t *testing.T) {
	m := members{postgres: testserver.StartPostgres(t), redis: testserver.StartRedis(t)}
	m.migrate(t)
	b := quorum.New(map[string]driver.Backend{"a": m.table(t), "b": m.table(t), "c": redislock.Open(&redis.UniversalOptions{Addrs: []string{m.redis.Addr()}})})
	if err := b.Ping(t.Context()); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "one server") {
		t.Errorf("Ping with two members that use one database: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// The members are a Redis, an etcd and a PostgreSQL. A lock has one holder at a time, and
// tokens rise, whichever two of the members are the majority.
func TestMembersOfDifferentEngines(t *testing.T) {
	m := start(t)
	s := &workload{t: t, want: tries(t), done: make(chan struct{}), inside: map[string]context.Context{}, tokens: map[string]uint64{}}
	begin := time.Now()
	var work sync.WaitGroup
	for range 3 {
		l := m.join(t)
		for range 2 {
			work.Go(func() { s.takeLocks(l) })
		}
	}
	work.Go(func() { s.injectFaults(m) })
	work.Wait()
	t.Logf("%d holds in %v, %d calls failed, %d faults", s.holds, time.Since(begin).Round(time.Millisecond), s.failed, s.faults)
}
