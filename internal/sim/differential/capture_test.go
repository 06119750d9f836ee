package differential

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// sources is the folder of the scripts that redislock sends. They have names in place of
// its constants.
const sources = "../../../runtime/backends/redislock"

// constants matches these names: see newScript in redislock.
var constants = regexp.MustCompile(`\b(TOKEN_LIMIT|LOOK_AGAIN|LEFT_TO_REDISSON|QUEUE_LIMIT|CLUSTER)\b`)

// scripts returns the text of each script, by its file's name without ".lua". The scripts
// read the time from the clock that the tests set.
//
// The texts are captured from the connection.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	sent := recordScripts(t)
	files, err := filepath.Glob(filepath.Join(sources, "*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", sources, err)
	}
	found, values := map[string]string{}, map[string]string{}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		names = append(names, name)
		for _, whole := range sent {
			if learned, ok := match(t, string(text), whole); ok {
				found[name] = whole
				for constant, value := range learned {
					if old := values[constant]; old != "" && old != value {
						t.Fatalf("%s is %s in one script and %s in another", constant, old, value)
					}
					values[constant] = value
				}
			}
		}
	}
	for _, name := range names {
		if name == "server" || name == "grant" { // they are parts of other scripts
			continue
		}
		if name == "swap" || name == "foreign" { // scripts for locks that are not mutexes or not ours, which the simulation does not use
			continue
		}
		if found[name] == "" {
			t.Fatalf("redislock did not send %s.lua", name)
		}
		found[name] = strings.ReplaceAll(found[name], "call('TIME')", "call('MGET', '"+clockSeconds+"', '"+clockMicros+"')")
	}
	return found
}

// match reports whether whole is the script of this source or ends with it. learned has the
// values of the constants whose names are in the source.
func match(t *testing.T, source, whole string) (learned map[string]string, ok bool) {
	t.Helper()
	var pattern strings.Builder
	var names []string
	from := 0
	for _, at := range constants.FindAllStringIndex(source, -1) {
		pattern.WriteString(regexp.QuoteMeta(source[from:at[0]]) + `('?\w+'?)`)
		names = append(names, source[at[0]:at[1]])
		from = at[1]
	}
	pattern.WriteString(regexp.QuoteMeta(source[from:]) + "$")
	found := regexp.MustCompile(pattern.String()).FindStringSubmatch(whole)
	if found == nil {
		return nil, false
	}
	learned = map[string]string{}
	for i, name := range names {
		if old := learned[name]; old != "" && old != found[i+1] {
			t.Fatalf("%s is %s in one place and %s in another", name, old, found[i+1])
		}
		learned[name] = found[i+1]
	}
	return learned, true
}

// recordScripts makes redislock do everything that it does at a standalone server, and
// returns the scripts that it sends.
func recordScripts(t *testing.T) []string {
	t.Helper()
	m := miniredis.RunT(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	Repair(m, func(_ *server.Peer, cmd string, args ...string) bool {
		if cmd == "EVAL" && len(args) > 0 {
			mu.Lock()
			defer mu.Unlock()
			seen[args[0]] = true
		}
		return false
	})
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // limit for everything, until together.lua was sent
	defer cancel()

	lockOnce(t, ctx, client)
	b := redislock.New(client)
	defer b.Close()
	callBackend(t, ctx, b)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	for round := 0; count() < 5 && ctx.Err() == nil; round++ { // the fifth script is together.lua
		storm(ctx, b, round)
	}
	var texts []string
	for text := range seen {
		texts = append(texts, text)
	}
	return texts
}

// lockOnce acquires and releases a lock as a user of the library does.
func lockOnce(t *testing.T, ctx context.Context, client *redis.Client) {
	t.Helper()
	l := lock.New(redislock.New(client), nil)
	defer l.Close(ctx)
	if err := l.Do(ctx, nil, "once", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// callBackend calls the methods that a Locker calls.
func callBackend(t *testing.T, ctx context.Context, b *redislock.Backend) {
	t.Helper()
	held := &driver.Acquisition{Key: "held", ID: processes[0] + ":1", TTL: time.Minute, Tokens: 1}
	lease, err := b.Acquire(ctx, held)
	if err != nil {
		t.Fatal(err)
	}
	waits := &driver.Acquisition{Key: "held", ID: processes[1] + ":1", TTL: time.Minute, Tokens: 3, Queue: true, MayHaveRun: true}
	if _, err := b.Acquire(ctx, waits); err == nil {
		t.Fatal("the lock was acquired twice")
	}
	if err := b.RenewAll(ctx, []driver.Lease{lease}, []time.Duration{time.Minute})[0]; err != nil {
		t.Fatal(err)
	}
	if err := b.Undo(ctx, waits); err != nil {
		t.Fatal(err)
	}
	first, _ := lease.Tokens()
	if err := b.RaiseToken(ctx, lease, first+1); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx, first); err != nil {
		t.Fatal(err)
	}
}

// storm acquires and releases many locks at once.
func storm(ctx context.Context, b *redislock.Backend, round int) {
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			a := &driver.Acquisition{
				Key: fmt.Sprintf("many:%d:%d", round, i), ID: fmt.Sprintf("%s:%d", processes[2], 16*round+i),
				TTL: time.Minute, Tokens: 1,
			}
			if lease, err := b.Acquire(ctx, a); err == nil {
				first, _ := lease.Tokens()
				_ = lease.Release(ctx, first)
			}
		})
	}
	all.Wait()
}
