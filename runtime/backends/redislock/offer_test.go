package redislock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// What was granted to one who gave up is undone, and nothing is granted to one who
// has; an offer that another acquisition of the process made stays.
func TestUndoOfAnOffer(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	b := newTestBackend(t, addr)
	undo := func(a *driver.Acquisition, leaves bool) {
		t.Helper()
		u := *a
		u.Queue = leaves
		if err := b.Undo(t.Context(), &u); err != nil {
			t.Error(err)
		}
	}
	t.Run("before", func(t *testing.T) {
		held, _ := holding(t, addr, key)
		a := wish(key, 1)
		waits(t, b, a)
		undo(a, false)
		if offers(t, addr, key) != 0 || places(t, addr, key) != 1 {
			t.Errorf("%d offers, %d places", offers(t, addr, key), places(t, addr, key))
		}
		freeLease(t, held)
		if exists(t, addr, key) {
			t.Error("granted all the same")
		}
		undo(a, true)
	})
	t.Run("after", func(t *testing.T) {
		held, _ := holding(t, addr, key)
		a := wish(key, 1)
		waits(t, b, a)
		freeLease(t, held)
		if !isOwner(t, addr, a) {
			t.Error("not granted")
		}
		undo(a, true)
		if exists(t, addr, key) {
			t.Error("not freed")
		}
		next := &driver.Acquisition{Key: key, ID: a.ID + "1", TTL: long, Tokens: 1, Queue: true}
		l, err := b.Acquire(t.Context(), next) // the grant was not for this one
		if err != nil {
			t.Fatal(err)
		}
		if !isOwner(t, addr, next) {
			t.Error("it took what was granted to another")
		}
		freeLease(t, l)
	})
	t.Run("of another", func(t *testing.T) {
		held, _ := holding(t, addr, key)
		old := wish(key, 1)
		waits(t, b, old)
		a := &driver.Acquisition{Key: key, ID: old.ID + "1", TTL: long, Tokens: 1, Queue: true}
		if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
			t.Fatal(err)
		}
		undo(old, false)
		freeLease(t, held)
		if !isOwner(t, addr, a) {
			t.Error("the offer of the later acquisition was withdrawn")
		}
		undo(a, true)
	})
	if offers(t, addr, key) != 0 || places(t, addr, key) != 0 {
		t.Errorf("left: %d offers, %d places", offers(t, addr, key), places(t, addr, key))
	}
}

// An offer and its place go together: both stay when an earlier acquisition of the
// process is undone beside the one that waits, and both go with a later one. Who
// waits all the same has both again when it tries again.
func TestOfferStaysWithItsPlace(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	for by, want := range map[string]int64{":1": 1, ":3": 0} {
		key := newKey(t)
		held, _ := holding(t, addr, key)
		uuid, _, _ := strings.Cut(newID(), ":")
		a := &driver.Acquisition{Key: key, ID: uuid + ":2", TTL: long, Tokens: 1, Queue: true}
		waits(t, b, a)
		undo := &driver.Acquisition{Key: key, ID: uuid + by, TTL: long, Tokens: 1, Queue: true}
		if err := b.Undo(t.Context(), undo); err != nil {
			t.Fatal(err)
		}
		if o, p := offers(t, addr, key), places(t, addr, key); o != want || p != want {
			t.Errorf("undone as %s: %d offers and %d places, want %d", by, o, p, want)
		}
		if want == 0 {
			if _, err := b.Acquire(t.Context(), a); !isHeldError(err) {
				t.Fatal(err)
			}
		}
		freeLease(t, held)
		if !isOwner(t, addr, a) || offers(t, addr, key) != 0 {
			t.Errorf("undone as %s: granted %t; %d offers are left", by, isOwner(t, addr, a), offers(t, addr, key))
		}
		l, _ := grantOf(t, b, a)
		freeLease(t, l)
	}
}

// A later attempt that makes no offer withdraws the one before, whose acquisition
// is over.
func TestAttemptWithoutAnOffer(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b, a := newTestBackend(t, addr), wish(key, 1)
	waits(t, b, a)
	fixed := &driver.Acquisition{Key: key, ID: a.ID + "1", TTL: long, Tokens: 1, Queue: true, NoRenewal: true}
	if _, err := b.Acquire(t.Context(), fixed); !isHeldError(err) {
		t.Fatal(err)
	}
	if offers(t, addr, key) != 0 || fixed.MayBeGranted {
		t.Errorf("%d offers, Pending %v", offers(t, addr, key), fixed.MayBeGranted)
	}
	freeLease(t, held)
	if exists(t, addr, key) {
		t.Error("granted")
	}
	l, _ := grantOf(t, b, fixed)
	if left := l.Deadline().Left(); left < long*3/4 {
		t.Errorf("a lease of %v", left)
	}
	freeLease(t, l)
}

// An offer that has not been renewed for long counts for nothing: its process may
// hang. Nor does one that was made later than now: the server's clock went back.
func TestOfferOfAnotherTime(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"old": -freshOffer, "of the future": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, key := testserver.Redis(t), newKey(t)
			held, _ := holding(t, addr, key)
			b, a := newTestBackend(t, addr), wish(key, 1)
			waits(t, b, a)
			offer := strings.Fields(command(t, addr, "HGET", offersOf(key), process(a.ID)).(string))
			offer[4] = strconv.Itoa(number(offer[4]) + int(by.Microseconds()))
			command(t, addr, "HSET", offersOf(key), process(a.ID), strings.Join(offer, " "))
			freeLease(t, held)
			if exists(t, addr, key) {
				t.Error("granted")
			}
			l, _ := grantOf(t, b, a)
			freeLease(t, l)
		})
	}
}

// Two Lockers of one Backend share a connection: the server could not tell the
// second from a stranger, nor a stranger from the second.
func TestTwoLockersOfOneBackendMakeNoTwoOffers(t *testing.T) {
	t.Parallel()
	addr, key := testserver.Redis(t), newKey(t)
	held, _ := holding(t, addr, key)
	b := newTestBackend(t, addr)
	a := wish(key, 1)
	other := &driver.Acquisition{Key: key, ID: "f" + newID()[1:], TTL: long, Tokens: 1, Queue: true}
	waits(t, b, a)
	waits(t, b, other)
	if n := offers(t, addr, key); n != 1 || other.MayBeGranted {
		t.Errorf("%d offers, Pending %v", n, other.MayBeGranted)
	}
	if err := b.Undo(t.Context(), other); err != nil {
		t.Error(err)
	}
	freeLease(t, held)
	if err := b.Undo(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// Where one Locker of a Backend frees what another waits for, their connection is
// that of the offer, and no other one is taken for it.
func TestStrangerBesideTwoLockersOfOneBackend(t *testing.T) {
	t.Parallel()
	addr := testserver.Redis(t)
	b := newTestBackend(t, addr)
	for _, strange := range []bool{false, true} {
		key := newKey(t)
		held, _ := grantOf(t, b, wish(key, 1))
		a := wish(key, 1)
		waits(t, b, a)
		if strange {
			stranger := newClient(t, addr).Subscribe(t.Context(), channelOf(key))
			defer stranger.Close()
			subscribed(t, addr, key, 2)
		}
		freeLease(t, held)
		if isOwner(t, addr, a) == strange || exists(t, addr, key) == strange {
			t.Errorf("with a stranger %t: granted %t", strange, isOwner(t, addr, a))
		}
		if err := b.Undo(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
}
