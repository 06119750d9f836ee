package sqllock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const at = int64(1_700_000_000_000_000)

var one, two, three = queueEntry("one:1"), queueEntry("two:1"), queueEntry("three:1")

// A free lock is kept for half a second for each process that is ahead in the queue, and for two seconds
// at most.
func TestWhoseTurnItIs(t *testing.T) {
	for _, c := range []struct {
		says    string
		r       row
		me      string
		turn    bool
		heldFor time.Duration
	}{
		{"free, nobody waits", row{expires: at}, two, true, time.Millisecond},
		{"there is no row", row{}, two, true, time.Millisecond},
		{"first in the queue", row{expires: at, waiting: two + one}, two, true, time.Millisecond},
		{"behind one", row{expires: at - 100_000, waiting: one + two}, two, false, 400 * time.Millisecond},
		{"not in the queue", row{expires: at, waiting: one + three}, two, false, time.Second},
		{"the time of the process ahead is over", row{expires: at - 500_000, waiting: one + two}, two, true, time.Millisecond},
		{"many are ahead", row{expires: at, waiting: strings.Repeat(one, 12) + two}, two, false, 2 * time.Second},
		{"held", row{owner: "x", expires: at + 7_000_000}, two, false, 7 * time.Second},
		{"the lease is over", row{owner: "x", expires: at - 1}, two, true, time.Millisecond},
		{"the clock has gone back since it was freed", row{expires: at + clockBack + 1, waiting: one + two}, two, true, 0},
		{"the clock was read before a wait for the row", row{expires: at + 1000, waiting: one + two}, two, false, 0},
		{"the clock was read before a wait for the row, and nobody waits", row{expires: at + 1000}, two, true, 0},
	} {
		r := rowView{row: c.r, now: at}
		if r.isTurn(c.me) != c.turn {
			t.Errorf("%s: turn %v", c.says, !c.turn)
		}
		var held *driver.HeldError
		if errors.As(r.heldError(c.me), &held); c.heldFor > 0 && held.RetryAfter != c.heldFor {
			t.Errorf("%s: held for %v", c.says, held.RetryAfter)
		}
	}
}

// A process that takes a lock leaves the queue, and so do those ahead of it. Its tokens are above the former ones
// and not below the clock.
func TestWhatTakingARowMakesOfIt(t *testing.T) {
	a := &driver.Acquisition{Key: "k", ID: "two:7", Tokens: 3}
	r := rowView{row: row{expires: at - 1, version: 9, waiting: one + two + three, undone: "|x|", undoneUntil: at}, now: at}
	r.take(a, 1000)
	if want := (row{owner: "two:7", acquired: at, expires: at + 1000, version: 4*at + 2, waiting: three, undoneUntil: at}); r.row != want {
		t.Errorf("%+v", r.row)
	}
	r = rowView{row: row{version: 5 * at, undone: "|x|", undoneUntil: at + 1}, now: at}
	r.take(a, 1000)
	if r.version != 5*at+3 || r.undone != "|x|" {
		t.Errorf("%+v", r.row)
	}
}

func TestTombstones(t *testing.T) {
	r := rowView{row: row{undone: tombstoneMark("old"), undoneUntil: at}, now: at}
	r.tombstone("a:1", time.Second)
	r.tombstone("b:1", time.Millisecond)
	if r.undone != tombstoneMark("a:1")+tombstoneMark("b:1") || r.undoneUntil != at+1_000_000 ||
		!r.isUndone("a:1") || r.isUndone("a:") || r.isUndone("old") {
		t.Errorf("%+v", r.row)
	}
	for range maxUndone {
		r.tombstone("c:1", time.Second)
	}
	if len(r.undone) != maxUndone || !r.isUndone("c:1") {
		t.Errorf("%d bytes", len(r.undone))
	}
	if r.now += 1_000_000; r.isUndone("c:1") {
		t.Error("the tombstone has not expired")
	}
}

// A copy of an acquire that ran between the release and the tombstone holds nothing.
func TestTombstoneFreesWhatCameLate(t *testing.T) {
	for owner, freed := range map[string]bool{"a:1": true, "b:1": false} {
		r := rowView{row: row{owner: owner, expires: at + 1000, version: 7}, now: at}
		r.tombstone("a:1", time.Second)
		if free := r.owner == "" && r.expires == at; free != freed || r.version != 7 {
			t.Errorf("%s: %+v", owner, r.row)
		}
	}
}

// Records are stored in ASCII, as JSON of the same texts.
func TestASCII(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		`v {"done":["=a\u0000"]}`: `v {"done":["=a\u0000"]}`,
		`["=2026年1月/😀 ü"]`:        `["=2026\u5e741\u6708/\ud83d\ude00 \u00fc"]`,
	} {
		if got := ascii(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
