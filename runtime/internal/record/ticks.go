package record

import (
	"slices"
	"time"
)

const (
	// ticksLast is for how long after its last write a record that knows completed
	// ticks is kept: more than a month, for jobs that run monthly.
	ticksLast = 40 * 24 * time.Hour
	// manyTicks and manyTickBytes bound how many it knows.
	manyTicks     = 256
	manyTickBytes = 10_000
)

// isDone reports whether this tick was completed.
func (s *State) isDone(tick Text) bool { return tick != "" && slices.Contains(s.Done, tick) }

// complete notes that a tick was completed. Those that were completed the longest ago are
// forgotten where there are too many.
func (s *State) complete(tick Text) {
	if slices.Contains(s.Done, tick) {
		return
	}
	s.Done = append(s.Done, tick)
	size := 0
	for _, t := range s.Done {
		size += len(t)
	}
	for len(s.Done) > manyTicks || size > manyTickBytes {
		size -= len(s.Done[0])
		s.Done = slices.Delete(s.Done, 0, 1)
	}
}
