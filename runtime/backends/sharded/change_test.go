package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

var short = &lock.Policy{TTL: time.Second}

// keyOf returns a key that the Backend of p has at member atP, and that of q at member atQ.
func keyOf(p, q *process, atP, atQ string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("key %d", i); p.backend.Owner(key) == atP && q.backend.Owner(key) == atQ {
			return key
		}
	}
}

// Members are added and removed under load. For that the processes are replaced one after the
// other, as a deployment does.
func TestChangedUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abcd")
		running := []*process{w.load(w.started(w.join(1, "abc", ""))), w.load(w.join(1, "abc", "")), w.load(w.join(1, "abc", ""))}
		for version := uint64(2); version < 7; version++ {
			time.Sleep(2 * time.Second)
			names, leaving := "abcd", ""
			if version%2 == 1 {
				names, leaving = "abc", "d"
			}
			for i, old := range running {
				running[i] = w.load(w.join(version, names, leaving))
				time.Sleep(3 * time.Second)
				old.end()
			}
			time.Sleep(drain)
			if err := running[0].backend.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for _, p := range running {
			p.end()
		}
		t.Logf("5 changes of 3 and 4 members, %d holds", w.holds)
		if w.holds < 1000 {
			t.Error("too few calls got a lock")
		}
		time.Sleep(time.Minute)
	})
}

// An old process is refused the keys that have moved. Its hold of such a key ends before the new member
// grants the key. Both the old and the new process get all other keys at once.
func TestOldProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abcd")
		old := w.started(w.join(1, "abc", ""))
		changed := time.Now()
		late := w.join(2, "abcd", "")
		moves, stays := keyOf(old, late, "a", "d"), keyOf(old, late, "a", "a")
		ctx, h, err := old.Acquire(t.Context(), short, moves)
		if err != nil {
			t.Fatal(err)
		}
		inner, kept, err := old.Acquire(t.Context(), short, stays)
		if err != nil {
			t.Fatal(err)
		}
		_ = late.backend.Ping(t.Context()) // begins the change
		<-ctx.Done()
		if took := time.Since(changed); took > short.TTL+2*quick.Probe {
			t.Errorf("the old hold of a key that moves ended after %v; its lease must not be renewed", took)
		}
		_, again, err := late.Acquire(t.Context(), short, moves)
		took := time.Since(changed)
		if err != nil || took < drain || took > drain+2*time.Second {
			t.Errorf("a key that moves was granted after %v: %v; want %v and a little more", took, err, drain)
		}
		if lock.Check(ctx) == nil {
			t.Error("two are inside at the same time")
		}
		if err := lock.Check(inner); err != nil {
			t.Errorf("a hold of a key that stays: %v", err)
		}
		again.Release(nil)
		h.Release(nil)
		if _, _, err := old.Acquire(t.Context(), short, moves); !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), `"d"`) {
			t.Errorf("an old process's acquire of a key that has moved: %v", err)
		}
		kept.Release(nil)
		for _, p := range []*process{old, late} {
			begin := time.Now()
			_, h, err := p.Acquire(t.Context(), short, stays)
			if took := time.Since(begin); err != nil || took > 50*time.Millisecond {
				t.Errorf("an acquire of a key that stays ended after %v: %v", took, err)
			}
			h.Release(nil)
			p.end()
		}
		time.Sleep(time.Minute)
	})
}

// An old process can't read a member's record any more, but can still renew its lease there. It holds the key
// no longer than the new member waits. The new member waits until the new process can write the record of the old member.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abcd")
		old := w.started(w.join(1, "abc", ""))
		late := w.join(2, "abcd", "")
		key, a := keyOf(old, late, "a", "d"), w.servers["a"]
		ctx, h, err := old.Acquire(t.Context(), &lock.Policy{TTL: 3 * time.Second}, key)
		if err != nil {
			t.Fatal(err)
		}
		a.set(func() { a.mute[late.number] = true })
		_ = late.backend.Ping(t.Context())
		time.Sleep(2 * drain)
		w.refused(late, key)
		if _, _, err := late.Acquire(t.Context(), &lock.Policy{TTL: time.Second, Try: true}, key); !strings.Contains(fmt.Sprint(err), `once the member "a"`) {
			t.Errorf("got %v; the error must say which member delays the change", err)
		}
		if lock.Check(ctx) != nil {
			t.Errorf("while the old member has the old record, lock.Check of the old hold: %v", lock.Check(ctx))
		}
		a.set(func() { a.mute[late.number], a.blind[old.number] = false, true })
		_, again, err := late.Acquire(t.Context(), short, key)
		if err != nil || lock.Check(ctx) == nil {
			t.Errorf("the new acquire: %v; lock.Check of the old hold: %v", err, lock.Check(ctx))
		}
		again.Release(nil)
		h.Release(nil)
		old.end()
		late.end()
		time.Sleep(time.Minute)
	})
}

// An old process has one member, which has lost its data, and which no new process can reach. The old process does
// not bring the old membership back. Its calls do not wait for a process that has the later membership.
func TestOldProcessAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "ab")
		old := w.started(w.join(1, "a", ""))
		late := w.join(2, "ab", "")
		_, _ = old.backend.Ping(t.Context()), late.backend.Ping(t.Context())
		time.Sleep(drain + time.Second)
		key, a := keyOf(old, late, "a", "b"), w.servers["a"]
		a.set(func() { a.cut[late.number], a.memory = true, memlock.New() })
		time.Sleep(2 * drain)
		_, h, err := late.Acquire(t.Context(), short, key)
		if err != nil {
			t.Fatal(err)
		}
		w.refused(old, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, _, err := old.Acquire(ctx, short, key); !errors.Is(err, lock.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("the old process's acquire: %v; it must be ErrUnavailable before the context ends", err)
		}
		h.Release(nil)
		old.end()
		late.end()
		time.Sleep(time.Minute)
	})
}

// Under load, a member restarts without its record and its locks. An old process may write its old record
// there.
func TestMemberForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abcd")
		old, late := w.load(w.started(w.join(1, "abc", ""))), w.load(w.join(2, "abcd", ""))
		for i := range 12 {
			time.Sleep(time.Duration(i%4+1) * drain / 2)
			s := w.servers[string("abcd"[i%4])]
			s.set(func() { s.dead = true })
			time.Sleep(quick.Silence + time.Second)
			s.set(func() { s.dead, s.memory = false, memlock.New() })
		}
		time.Sleep(3 * drain)
		before := w.held()
		time.Sleep(drain)
		if w.held() == before {
			t.Error("no call gets a lock any more")
		}
		if err := late.backend.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		old.end()
		late.end()
		time.Sleep(time.Minute)
	})
}

// A member is away while a change waits, and comes back without its record and its locks. One process
// writes the record again before the other has noticed the loss. The other one must not open that record at once.
func TestMemberForgetsDuringAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abc")
		old := w.started(w.join(1, "ab", ""))
		sees, blind := w.join(2, "abc", ""), w.join(2, "abc", "")
		_, _ = sees.backend.Ping(t.Context()), blind.backend.Ping(t.Context())
		time.Sleep(drain - time.Second)
		key, a := keyOf(old, sees, "a", "a"), w.servers["a"]
		ctx, h, err := sees.Acquire(t.Context(), &lock.Policy{TTL: 3 * time.Second, NoRenew: true}, key)
		if err != nil {
			t.Fatal(err)
		}
		a.set(func() { a.dead = true })
		time.Sleep(quick.Silence + 50*time.Millisecond)
		a.set(func() { a.dead, a.memory, a.blind[blind.number] = false, memlock.New(), true })
		time.Sleep(quick.Probe + 50*time.Millisecond)
		a.set(func() { a.blind[blind.number] = false })
		_, again, err := blind.Acquire(t.Context(), short, key)
		if err != nil || lock.Check(ctx) == nil {
			t.Errorf("the acquire after the loss: %v; lock.Check of the hold from before: %v", err, lock.Check(ctx))
		}
		again.Release(nil)
		h.Release(nil)
		for _, p := range []*process{old, sees, blind} {
			p.end()
		}
		time.Sleep(time.Minute)
	})
}

// A member is gone for good. Its keys are granted by the other members after a wait.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abc")
		old := w.started(w.join(1, "abc", ""))
		for _, gone := range []bool{false, true} {
			o := quick
			o.Version = 2
			if gone {
				o.Leaving = map[string]driver.Backend{"c": nil}
			}
			p := &process{backend: sharded.New(map[string]driver.Backend{"a": link{w.servers["a"], 9}, "b": link{w.servers["b"], 9}}, o), stop: make(chan struct{})}
			p.Locker = lock.New(p.backend, nil)
			key, begin := keyOf(old, p, "c", "a"), time.Now()
			time.Sleep(time.Second)
			_, h, err := p.Acquire(t.Context(), short, key)
			switch took := time.Since(begin); {
			case gone && (err != nil || took < drain):
				t.Errorf("an acquire of a key of the gone member ended after %v: %v", took, err)
			case !gone && (!errors.Is(err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "Options.Leaving")):
				t.Errorf("an acquire without the old member in Options.Leaving: %v", err)
			}
			h.Release(nil)
			p.end()
		}
		old.end()
		time.Sleep(time.Minute)
	})
}

// A first start waits, and so does a call that begins before there is a record. Two memberships with the same
// version are refused.
func TestFirstStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abc")
		begin, p := time.Now(), w.join(1, "ab", "")
		var others sync.WaitGroup
		others.Go(func() { w.refused(p, "key") })
		_, h, err := p.Acquire(t.Context(), short, "key")
		if took := time.Since(begin); err != nil || took < drain || took > drain+2*time.Second {
			t.Errorf("the first start took %v: %v", took, err)
		}
		h.Release(nil)
		others.Wait()
		other := w.join(1, "abc", "")
		_ = other.backend.Ping(t.Context())
		time.Sleep(time.Second)
		if _, _, err := other.Acquire(t.Context(), short, "key"); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "Options.Version") {
			t.Errorf("an acquire with another membership of the same version: %v", err)
		}
		p.end()
		other.end()
		time.Sleep(time.Minute)
	})
}

// If a change begins while the first start waits, all keys wait.
func TestChangeInChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "abc")
		first := w.join(1, "ab", "")
		_ = first.backend.Ping(t.Context())
		time.Sleep(time.Second)
		begin, next := time.Now(), w.join(2, "abc", "")
		_ = next.backend.Ping(t.Context())
		time.Sleep(time.Second)
		stays := keyOf(first, next, "a", "a")
		w.refused(first, stays)
		for _, p := range []*process{first, next} {
			_, h, err := p.Acquire(t.Context(), short, stays)
			if took := time.Since(begin); err != nil || took < drain || took > drain+2*time.Second {
				t.Errorf("process %d: %v after %v; it must wait for %v, because nobody knows who held the key, and get the key then", p.number, err, took, drain)
			}
			h.Release(nil)
		}
		first.end()
		next.end()
		time.Sleep(time.Minute)
	})
}

// plain implements neither driver.Agreement nor driver.TokenRaiser.
type plain struct{ driver.Backend }

func TestRefused(t *testing.T) {
	m := memlock.New()
	both := sharded.Options{Leaving: map[string]driver.Backend{"a": memlock.New()}}
	for advice, b := range map[string]*sharded.Backend{
		"got no member":    sharded.New(nil),
		"is nil":           sharded.New(map[string]driver.Backend{"a": nil}),
		"are one Backend":  sharded.New(map[string]driver.Backend{"a": m, "b": m}),
		"driver.Agreement": sharded.New(map[string]driver.Backend{"a": plain{m}}),
		"and leaves":       sharded.New(map[string]driver.Backend{"a": m}, both),
	} {
		a := &driver.Acquisition{Key: "key", ID: "00000000-0000-8000-8000-000000000001:1", TTL: time.Second, Tokens: 1}
		_, err := b.Acquire(context.Background(), a)
		for _, err := range []error{err, b.Ping(t.Context())} {
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), advice) {
				t.Errorf("want ErrInvalid with %q, got %v", advice, err)
			}
		}
		_ = b.Close()
	}
}
