// Package section is the critical section of every workload: a place in memory
// that processes share, where an overlap of two holders, a lost update or a
// fencing token that did not rise leaves a trace.
package section

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// Board is the slots of one measurement, a file that its processes map. Each
// lock has one slot.
type Board struct {
	memory []byte
	slots  []Slot
}

const slotSize = int(unsafe.Sizeof(Slot{}))

// Create makes the file of a board with n slots.
func Create(path string, n int) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Truncate(int64(n * slotSize))
}

// Open maps the board at path. What one process writes to it all others see.
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

// Close unmaps the board; its slots must not be used any more.
func (b *Board) Close() error { return unmap(b.memory) }

// Slot returns the slot of lock i.
func (b *Board) Slot(i int) *Slot { return &b.slots[i] }

// Totals is what the slots of a board have seen.
type Totals struct {
	Visits   uint64 // as the counters say that would race
	Overlaps uint64 // entered or left while another was inside
	Stale    uint64 // entered with a token not above the one before
	Inside   uint64 // entered and not left
}

// Totals adds up all slots. It is exact once nobody enters any more.
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

// Verify returns what is wrong, given how many visits the processes made.
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
