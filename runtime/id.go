package lock

import (
	"crypto/rand"
	"fmt"
	"strconv"
)

func (l *Locker) newID(number uint64) string {
	id := make([]byte, 0, 64)
	id = append(append(id, l.id...), ':')
	return string(strconv.AppendUint(id, number, 10))
}

// newUUID returns a random UUID of version 8 of RFC 9562, which is free for own use.
// Redisson writes the owner of a lock by one of version 4, so that the two can be told apart.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// numbersAtOnce is how many numbers a shard draws for the IDs of its acquisitions.
const numbersAtOnce = 64

// numberLocked returns the number of a new acquisition's ID. For one key, each number is
// higher than the one before.
func (l *Locker) numberLocked(s *shard) uint64 {
	if s.number%numbersAtOnce == 0 {
		s.number = l.numbers.Add(numbersAtOnce) - numbersAtOnce
	}
	s.number++
	return s.number
}

// newNumber returns the number of a new acquisition's ID, and whether anybody waits or
// has waited for e's key here.
func (l *Locker) newNumber(e *entry) (number uint64, contested bool) {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	return l.numberLocked(e.shard), e.contested
}
