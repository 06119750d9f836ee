package record

import (
	"slices"
	"time"
)

const (
	// ticksLast is how long after its last write a record with completed ticks is kept: more than a
	// month, for jobs that run monthly.
	ticksLast = 40 * 24 * time.Hour
	// maxTicks and maxTickBytes bound the completed ticks of a record.
	maxTicks     = 256
	maxTickBytes = 10_000
)

// isDone reports whether this tick was completed.
func (s *State) isDone(tick Text) bool { return tick != "" && slices.Contains(s.Done, tick) }

// complete records that a tick was completed. If there are too many, the oldest are forgotten.
func (s *State) complete(tick Text) {
	if slices.Contains(s.Done, tick) {
		return
	}
	s.Done = append(s.Done, tick)
	size := 0
	for _, t := range s.Done {
		size += len(t)
	}
	for len(s.Done) > maxTicks || size > maxTickBytes {
		size -= len(s.Done[0])
		s.Done = slices.Delete(s.Done, 0, 1)
	}
}
