package record

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Client names the layout of records.
const Client = "lockgen"

var recordPrefix = regexp.MustCompile(`^[0-9a-f]{16} \{`)

// IsRecord reports whether a value with this beginning may be a record.
func IsRecord(value string) bool { return recordPrefix.MatchString(value) }

// Empty is a record that has no party yet.
const Empty = "0000000000000000 {}"

// Describe returns the holders of the lock whose record, at key, is value. now is the time of the
// engine's clock. At an engine without a clock a lease counts from when l first saw its beat. A
// value that is not a record is an error.
func (l *Locks) Describe(key, value string, now Time) (*driver.LockInfo, error) {
	_, s, err := decode(value)
	if err != nil {
		return nil, err
	}
	if l.clockless {
		l.mu.Lock()
		l.resolveBeatsLocked(key, &s, "", 0)
		now = l.localTime()
		l.mu.Unlock()
	}
	info := &driver.LockInfo{Key: key}
	for _, p := range s.Queue {
		info.Kind |= kindOf(family(p.Kind))
		if p.Until > now {
			info.Waiters++
		}
	}
	for _, p := range s.In {
		info.Kind |= kindOf(family(p.Kind))
		h := driver.Holder{ID: p.ID, Name: string(p.Name), Token: uint64(p.Token), Client: Client, Kind: kindOf(p.Kind), Left: p.Until.left(now)}
		if !l.clockless && p.Kind != kindRead { // a reader has the last writer's token
			h.Since = ClockOf(uint64(p.Token), now)
		}
		if h.Left > 0 {
			info.Holders = append(info.Holders, h)
		}
	}
	if info.Kind == 0 {
		if info.Kind = kindOf(family(s.Last)); len(s.Done) > 0 {
			info.Kind = driver.Once
		}
	}
	return info, nil
}

// ClockOf returns when a lease with this first token was granted, at an engine whose tokens come
// from its clock and whose time is now. It returns the zero time if the token can't come from that
// clock.
func ClockOf(token uint64, now Time) time.Time {
	at := int64(token / driver.TokensPerMicrosecond)
	if token == 0 || at > int64(now)+time.Minute.Microseconds() {
		return time.Time{}
	}
	return time.UnixMicro(at)
}

func kindOf(name string) driver.Kind {
	if name == family(kindRead) {
		return driver.Read | driver.Write
	}
	for k := driver.Read; k <= driver.Once; k <<= 1 {
		if k.String() == name {
			return k
		}
	}
	return 0
}

// Break removes the holder with this ID, in whatever process, and lets in the waiters whose turn it
// then is: see [driver.Inspector].
func (l *Locks) Break(ctx context.Context, key, id string) error {
	_, _, err := l.update(ctx, Write{Key: key}, func(s *State, now Time) (bool, error) {
		if s.holder(id) == nil {
			return false, fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
		}
		s.remove(id, now)
		return true, nil
	})
	return err
}

// The names, in errors, of what is at a key or what a caller asked for.
const (
	Mutex = "a mutex"
	other = "another kind of lock"
)

// Beside returns the error for a caller that asks for one kind of lock at a key that something else
// uses.
func Beside(is, asked string) error {
	return fmt.Errorf("%w: %s is at the key, and %s was asked for", driver.ErrConflict, is, asked)
}

// InsteadOf is Beside for a caller that asks for a lock other than a mutex.
func InsteadOf(is string) error { return Beside(is, other) }

// Noun names the record in value: "a fair lock". It returns "" if value is not a record.
func Noun(value string) string {
	_, s, err := decode(Resolve(value, 0))
	switch {
	case err != nil || value == "":
		return ""
	case s.Value != "":
		return "a value that processes agree on"
	case len(s.In)+len(s.Queue) > 0:
		return noun(append(s.In, s.Queue...)[0].Kind)
	case len(s.Done) > 0:
		return noun(kindOnce)
	}
	return noun(s.Last)
}

var nouns = map[string]string{
	kindRead: "a read-write lock", kindWrite: "a read-write lock", kindFair: "a fair lock",
	kindPermits: "a semaphore", kindCondition: "a condition", kindOnce: "a job that runs once",
}

// noun names a lock of this kind.
func noun(kind string) string { return cmp.Or(nouns[kind], other) }
