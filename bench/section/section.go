// Package section is the critical section of every workload. It is in memory that
// processes share, and counts overlaps of two holders, lost updates and fencing tokens
// that did not rise.
package section

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// Board holds the slots of one measurement, in a file that its processes map. Each
// lock has one slot.
type Board struct {
	memory []byte
	slots  []Slot
}

const slotSize = int(unsafe.Sizeof(Slot{}))

// Create creates the file of a board with n slots.
func Create(path string, n int) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Truncate(int64(n * slotSize))
}

// Open maps the board at path. All processes that map it see each other's writes.
func Open(path string) (*Board, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	memory, err := mapShared(file, int(info.Size()))
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	first := (*Slot)(unsafe.Pointer(unsafe.SliceData(memory)))
	return &Board{memory: memory, slots: unsafe.Slice(first, len(memory)/slotSize)}, nil
}

// Close unmaps the board. Its slots must not be used after that.
func (b *Board) Close() error { return unmap(b.memory) }

// Slot returns the slot of lock i.
func (b *Board) Slot(i int) *Slot { return &b.slots[i] }

// Totals holds the sums over all slots of a board.
type Totals struct {
	Visits   uint64 // counted without atomic increments, so that a lost update shows
	Overlaps uint64 // entries and exits while another holder was inside
	Stale    uint64 // entries with a token not above the one before
	Inside   uint64 // entries without an exit
}

// Totals adds up all slots. The result is exact once nobody enters any more.
func (b *Board) Totals() Totals {
	var t Totals
	for i := range b.slots {
		s := &b.slots[i]
		t.Visits += s.visits.Load()
		t.Overlaps += s.overlaps.Load()
		t.Stale += s.stale.Load()
		if s.inside.Load() != 0 {
			t.Inside++
		}
	}
	return t
}

// Verify returns an error for each violation. visits is the number of visits that the processes made.
func (t Totals) Verify(visits uint64) error {
	var errs []error
	if t.Overlaps > 0 {
		errs = append(errs, fmt.Errorf("%d times two holders were inside at once", t.Overlaps))
	}
	if t.Visits != visits {
		errs = append(errs, fmt.Errorf("%d holds left a count of %d", visits, t.Visits))
	}
	if t.Stale > 0 {
		errs = append(errs, fmt.Errorf("%d holds had a token not above the one before", t.Stale))
	}
	if t.Inside > 0 {
		errs = append(errs, fmt.Errorf("%d sections were entered and not left", t.Inside))
	}
	return errors.Join(errs...)
}
