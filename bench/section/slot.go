package section

import "sync/atomic"

// Slot is the section of one lock, in a cache line of its own. Its operations are
// atomic only so that processes see each other's writes. The count is read on entry
// and written on exit, as code without atomic operations would do.
type Slot struct {
	inside   atomic.Uint64 // the holder inside, or 0
	visits   atomic.Uint64
	token    atomic.Uint64 // of the last holder inside
	overlaps atomic.Uint64
	stale    atomic.Uint64
	_        [3]uint64
}

// Enter records that the holder who enters. who is not 0, and no other holder has this number.
// token is the fencing token, or 0 if the lock has none. The result is for Leave.
func (s *Slot) Enter(who, token uint64) (visit uint64) {
	if !s.inside.CompareAndSwap(0, who) {
		s.overlaps.Add(1)
	}
	if token != 0 {
		if token <= s.token.Load() {
			s.stale.Add(1)
		}
		s.token.Store(token)
	}
	return s.visits.Load()
}

// Leave records that the holder who leaves. The holder calls it before it unlocks.
func (s *Slot) Leave(who, visit uint64) {
	s.visits.Store(visit + 1)
	if !s.inside.CompareAndSwap(who, 0) {
		s.overlaps.Add(1)
	}
}
