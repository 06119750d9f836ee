// Package mutant makes copies of the project with one mistake each, to test the tools that
// should find such mistakes.
package mutant

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Mutant is the runtime with one mistake, which other lock libraries for Redis are known to
// make.
type Mutant struct {
	Name    string
	Mistake string
	Patches []Patch
	Faults  []string // the faults of a soak that show the mistake; nil means all, and some episodes without faults
	Locks   string   // the kind of lock in addition to the mutex, or the option of calls, that shows it; "" means any
}

// Patch replaces a piece of code in a file. The piece is as short as possible, so that
// changes of the code around it do not matter.
type Patch struct{ File, Old, New string }

const (
	redislock = "runtime/backends/redislock/"
	redisGo   = redislock + "redislock.go"
	record    = "runtime/internal/record/"
	locker    = "runtime/"
)

// All lists the mutants that a soak finds.
var All = []Mutant{
	{
		Name:    "counted",
		Mistake: "a count at the server (HINCRBY) instead of acquisition ids",
		Patches: []Patch{
			{redislock + "grant.lua", "'HSET', lock, id, '1')", "'HINCRBY', lock, id, '1')"},
			{redislock + "release.lua", "local freed = redis.pcall('HDEL', KEYS[1], ARGV[1])", `local freed = 0
if call('HEXISTS', KEYS[1], ARGV[1]) == 1 and call('HINCRBY', KEYS[1], ARGV[1], -1) <= 0 then
  freed = call('HDEL', KEYS[1], ARGV[1])
end`},
		},
		Faults: []string{"swallow-acquire", "swallow-any"},
	},
	{
		Name:    "unowned",
		Mistake: "a release that does not check the owner",
		Patches: []Patch{{redislock + "release.lua", "'HDEL', KEYS[1], ARGV[1])", "'DEL', KEYS[1])"}},
		Faults:  []string{"pause-client", "delay-requests", "swallow-acquire", "late-acquire"},
	},
	{
		Name:    "recreate",
		Mistake: "a renewal that makes the lock anew",
		Patches: []Patch{{redislock + "renew.lua", "redis.pcall('HEXISTS', KEYS[1], ARGV[1])", "redis.pcall('HSET', KEYS[1], ARGV[1], 1) and 1"}},
		Faults:  []string{"pause-client", "delay-requests", "stop-server", "force-unlock"},
	},
	{
		Name:    "deadline",
		Mistake: "a deadline that counts from the reply",
		Patches: []Patch{
			{redisGo, "l.extend(c.sent(), ", "l.extend(driver.Now(), "},
			{redislock + "renew.go", ".extend(c.sent(), ", ".extend(driver.Now(), "},
		},
		Faults: []string{"delay-replies", "stop-server", "pause-client"},
	},
	{
		Name:    "deaf",
		Mistake: "no poll behind the notifications",
		Patches: []Patch{{"runtime/waitqueue.go", "d := pollLimit - rand.N(pollLimit/10)", `d := pollLimit - rand.N(pollLimit/10)
	if d > 0 {
		return time.Hour
	}`}},
		Faults: []string{"kill-client", "kill-pubsub", "refuse", "pause-client"},
	},
	{
		Name:    "callerctx",
		Mistake: "a release under the caller's context, and no more",
		Patches: []Patch{
			{"runtime/release.go", "err := lk.Release(rc, ", "_ = rc\n\terr := lk.Release(ctx, "},
			{"runtime/release.go", "return l.finishRelease(lk, err)", "if ctx.Err() != nil {\n\t\treturn err\n\t}\n\treturn l.finishRelease(lk, err)"},
		},
	},
	{
		Name:    "tokens",
		Mistake: "tokens counted by each process",
		Patches: []Patch{
			{redisGo, "newLease(b, k, a, uint64(c.reply.number()))", "newLease(b, k, a, ownTokens.Add(1<<20))"},
			{redislock + "lease.go", "func newLease(", "var ownTokens atomic.Uint64\n\nfunc newLease("},
		},
	},
	{
		Name:    "wallclock",
		Mistake: "an expiry by the client's wall clock (PEXPIREAT)",
		Patches: []Patch{
			{redislock + "acquire.lua", "ARGV[1], ARGV[2], tonumber", "ARGV[1], string.format('%.0f', ARGV[2] - now() / 1000), tonumber"},
			{redisGo, "with(a.ID, ms(a.TTL), ", "with(a.ID, strconv.FormatInt(expiry(a.TTL), 10), "},
			{redisGo, "// Acquire implements [driver.Backend].", `func expiry(ttl time.Duration) int64 {
	wrong, _ := time.ParseDuration(os.Getenv("LOCKGEN_SOAK_SKEW"))
	return time.Now().Add(wrong + ttl).UnixMilli()
}

// Acquire implements [driver.Backend].`},
			{redisGo, "\t\"strconv\"\n", "\t\"os\"\n\t\"strconv\"\n"},
		},
	},
	{
		Name:    "tombstone",
		Mistake: "an undo that leaves no tombstone",
		Patches: []Patch{{redislock + "release.lua", "if ARGV[5] then", "if false then"}},
		Faults:  []string{"late-acquire", "delay-requests", "client-pause"},
	},
	{
		Name:    "waiter",
		Mistake: "a waiter that gives up and stays in the line",
		Patches: []Patch{{"runtime/queue.go", "if w.queued {\n\t\te.removeLocked(w)\n", "if w.queued {\n"}},
	},
	{
		Name:    "ttl",
		Mistake: "a ttl of nothing accepted",
		Patches: []Patch{{"runtime/policy.go", "p.TTL != 0 && p.TTL < MinTTL", "p.TTL != 0 && p.TTL < -MinTTL"}},
	},
	{
		Name:    "pool",
		Mistake: "renewals that wait behind the caller's own traffic",
		Patches: []Patch{
			{redislock + "new.go", "case *redis.Client:\n", "case *redis.Client:\n\t\tcallers = c\n"},
			{redislock + "new.go", "func newBackend(", "var callers *redis.Client\n\nfunc newBackend("},
			{redislock + "server.go", "client: redis.NewClient(&o), server", "client: callers, server"},
		},
	},
}

// OfKinds are mistakes in locks that are no mutexes. A soak finds them as well.
var OfKinds = []Mutant{
	{
		Name:    "beside",
		Mistake: "a writer that comes in while others read",
		Patches: []Patch{{record + "state.go", "case len(s.In) == 0:\n\t\treturn writers[:1]", "case true:\n\t\treturn writers[:1]"}},
	},
	{
		Name:    "permit",
		Mistake: "one permit more than there are",
		Patches: []Patch{{record + "state.go", "return taken <= limit", "return taken <= limit+1"}},
	},
	{
		Name:    "old-reader",
		Mistake: "readers whose token is below that of the last writer",
		Patches: []Patch{{record + "state.go", "p.Token = s.Written // the last writer's, whose data it reads", "p.Token = max(s.Written, 1) - 1"}},
	},
	{
		Name:    "pushes-in",
		Mistake: "a newcomer that passes those who wait",
		Patches: []Patch{{record + "state.go", "	return len(s.Queue) > 0\n}\n\n// downgrade", "	return false\n}\n\n// downgrade"}},
	},
	{
		Name:    "undone-tick",
		Mistake: "a completed tick that is not noted",
		Patches: []Patch{{record + "ticks.go", "	s.Done = append(s.Done, tick)\n", ""}},
	},
	{
		Name:    "done-early",
		Mistake: "a tick that is completed by whoever releases it",
		Patches: []Patch{{record + "lease.go", "l.release(ctx, last, false)", "l.release(ctx, last, true)"}},
	},
	{
		Name:    "two-writers",
		Mistake: "a reader that waits for one writer after the other",
		Patches: []Patch{{record + "state.go", "len(readers) > 0 && (s.Last == kindWrite || len(writers) == 0)", "len(readers) > 0 && len(writers) == 0"}},
	},
	{
		Name:    "revived",
		Mistake: "a renewal that lets its holder in again",
		Patches: []Patch{{record + "lease.go", "		if lost = p == nil; lost {\n", `		if p == nil {
			s.In = append(s.In, Party{ID: l.acquisition.ID, Kind: kindFair, Token: Token(l.first)})
			p = s.holder(l.acquisition.ID)
		}
		if lost = p == nil; lost {
`}},
	},
}

// OfExtras are mistakes in what callers ask for beside a kind of lock. A soak finds them as well.
var OfExtras = []Mutant{
	{
		Name:    "cond-late",
		Mistake: "a Wait that gives the lock up before it is known to wait",
		Patches: []Patch{{locker + "cond.go", `	w, err := c.enqueue(ctx)
	if err != nil {
		return c.fail("wait", err)
	}
	old := f.hold()
	if err := c.giveUp(ctx, old); err != nil {
		w.leave()
		return c.fail("wait", err)
	}
`, `	old := f.hold()
	if err := c.giveUp(ctx, old); err != nil {
		return c.fail("wait", err)
	}
	time.Sleep(20 * time.Millisecond)
	w, err := c.enqueue(ctx)
	if err != nil {
		return c.fail("wait", err)
	}
`}},
		Locks: "condition",
	},
	{
		Name:    "cond-swallow",
		Mistake: "a call of a condition that goes with who gives up",
		Patches: []Patch{{record + "locks.go", "s.callNext(1, now) // it was called, and gives up", "_ = now"}},
		Locks:   "condition",
	},
	{
		Name:    "cond-open",
		Mistake: "a Wait that returns without the lock",
		Patches: []Patch{{locker + "cond.go", "	if err := c.retake(f, owned(ctx), s, old); err != nil {", "	if old.lost.Store(nil); called == nil {\n		return nil\n	}\n	if err := c.retake(f, owned(ctx), s, old); err != nil {"}},
		Locks:   "condition",
	},
	{
		Name:    "cond-renewal",
		Mistake: "a renewal under way that ends a Wait",
		Patches: []Patch{{locker + "release.go", "cause != nil && cause != errGivenUp", "cause != nil"}},
		Locks:   "condition",
	},
	{
		Name:    "bound-more",
		Mistake: "one waits more than may",
		Patches: []Patch{{locker + "queue.go", "e.waitingLocked() >= p.Queue", "e.waitingLocked() > p.Queue"}},
		Locks:   "queue",
	},
	{
		Name:    "bound-less",
		Mistake: "a call refused though fewer wait than may",
		Patches: []Patch{{locker + "queue.go", "e.waitingLocked() >= p.Queue", "e.waitingLocked() >= p.Queue-1"}},
		Locks:   "queue",
	},
	{
		Name:    "delay-back",
		Mistake: "a lock with a delay that is given back when it is lost",
		Patches: []Patch{{locker + "release.go", "	if h.policy.Delay == 0 {", "	if true {"}},
		Locks:   "delay",
	},
	{
		Name:    "delay-short",
		Mistake: "a lease without the delay",
		Patches: []Patch{
			{locker + "acquire.go", "p.ttl() + p.Delay,", "p.ttl(),"},
			{locker + "lease.go", "lk.delay = p.Delay", ""},
		},
		Locks: "delay",
	},
	{
		Name:    "delay-held",
		Mistake: "a holder that counts the delay for its own",
		Patches: []Patch{{locker + "lease.go", "return end.Add(-lk.delay)", "return end"}},
		Locks:   "delay",
	},
	{
		Name:    "delay-kept",
		Mistake: "a lock with a delay that is not freed by its release",
		Patches: []Patch{{locker + "release.go", "	err := l.release(ctx, lease, now)\n", "	var err error\n	if lease.delay == 0 {\n		err = l.release(ctx, lease, now)\n	}\n"}},
		Locks:   "delay",
	},
}

// Apply makes the mistake in the tree at root. It fails if the code lacks a piece, because
// the mutant would then test nothing.
func (m Mutant) Apply(root string) error {
	for _, p := range m.Patches {
		path := filepath.Join(root, p.File)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), p.Old) {
			return fmt.Errorf("mutant %s no longer applies: %s has no %q", m.Name, p.File, p.Old)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), p.Old, p.New)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Copy copies the files and folders with these names from the folder from to the folder to.
func Copy(from, to string, names ...string) error {
	for _, name := range names {
		err := filepath.WalkDir(filepath.Join(from, name), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			relative, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			target := filepath.Join(to, relative)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			return os.WriteFile(target, text, 0o644)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
