package section

import (
	"path/filepath"
	"strings"
	"testing"
)

// board returns one board, mapped twice, as by two processes.
func board(t *testing.T, slots int) (one, other *Board) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board")
	if err := Create(path, slots); err != nil {
		t.Fatal(err)
	}
	var both [2]*Board
	for i := range both {
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		both[i] = b
	}
	return both[0], both[1]
}

func TestVisitsInTurnAreInOrder(t *testing.T) {
	one, other := board(t, 2)
	for i := range uint64(10) {
		b := one
		if i%2 == 1 {
			b = other
		}
		s := b.Slot(1)
		s.Leave(i+1, s.Enter(i+1, 100+i))
	}
	if err := other.Totals().Verify(10); err != nil {
		t.Error(err)
	}
}

func TestEachViolationIsSeen(t *testing.T) {
	cases := map[string]struct {
		visits uint64
		commit func(one, other *Slot)
	}{
		"two holders": {2, func(one, other *Slot) {
			v, w := one.Enter(1, 0), other.Enter(2, 0)
			one.Leave(1, v)
			other.Leave(2, w+1)
		}},
		"left a count of 1": {2, func(one, other *Slot) {
			v, w := one.Enter(1, 0), other.Enter(2, 0)
			one.Leave(1, v)
			other.Leave(2, w)
		}},
		"not above the one before": {2, func(one, other *Slot) {
			one.Leave(1, one.Enter(1, 7))
			other.Leave(2, other.Enter(2, 7))
		}},
		"not left": {0, func(one, _ *Slot) { one.Enter(1, 0) }},
	}
	for want, c := range cases {
		one, other := board(t, 1)
		c.commit(one.Slot(0), other.Slot(0))
		err := one.Totals().Verify(c.visits)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
