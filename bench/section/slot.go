package section

import "sync/atomic"

// Slot is the section of one lock, a cache line of its own. The operations are
// atomic only so that processes see each other's; the count is read on entry
// and written on leaving, as unguarded code would.
type Slot struct {
	inside   atomic.Uint64 // who is inside, 0 for nobody
	visits   atomic.Uint64
	token    atomic.Uint64 // of the last one inside
	overlaps atomic.Uint64
	stale    atomic.Uint64
	_        [3]uint64
}

// Enter is called by the holder who, which is not 0 and nobody else's number,
// with its fencing token, or 0 if its lock has none. Leave needs the result.
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

// Leave is called by the holder before it unlocks.
func (s *Slot) Leave(who, visit uint64) {
	s.visits.Store(visit + 1)
	if !s.inside.CompareAndSwap(who, 0) {
		s.overlaps.Add(1)
	}
}
