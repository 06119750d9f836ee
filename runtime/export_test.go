package lock

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/lockgen/lockgen/runtime/internal/bootclock"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Entries returns the number of keys that l holds or waits for.
func (l *Locker) Entries() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.entries)
		s.mu.Unlock()
	}
	return n
}

// Active returns how many acquires and holds are under way.
func (l *Locker) Active() int64 { return l.active() }

// Watched returns the number of leases that l's watchdog watches.
func (l *Locker) Watched() int {
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.leases)
		s.mu.Unlock()
	}
	return n
}

// NextLook returns how long l's watchdog will sleep before it looks at its leases again.
func (l *Locker) NextLook() time.Duration {
	return bootclock.Time(l.watchdog.next.Load()).Sub(bootclock.Now())
}

// NoticeSleep makes l's watchdog notice within d that the machine slept. It must be called before
// the first lock.
func (l *Locker) NoticeSleep(d time.Duration) { l.watchdog.noticeWithin = d }

// NewEntrySize is the size in bytes of the entry for a key that nobody held.
const NewEntrySize = unsafe.Sizeof(newEntry{})

// Waiting returns how many goroutines are in the local queue of key.
func (l *Locker) Waiting(key string) int {
	id := entryID{key: key}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if e := s.entries[id]; e != nil {
		for w := e.first; w != nil; w = w.next {
			n++
		}
	}
	return n
}

var (
	suspended atomic.Int64
	started   = time.Now()
)

// Suspend makes the machine look as if it had slept for d: the clock that counts sleep is ahead,
// the monotonic clock is not, and the wall clock has jumped. It has no effect in bubbles.
func Suspend(d time.Duration) {
	suspended.Add(int64(d))
	bootclock.Invalidate()
}

// SuspendUnseen is Suspend with a wall clock that was set back by as much.
func SuspendUnseen(d time.Duration) { suspended.Add(int64(d)) }

func init() {
	bootclock.Read = func() (time.Duration, bool) {
		boot, ok := bootclock.ReadSystem()
		if !ok {
			boot = time.Since(started)
		}
		return boot + time.Duration(suspended.Load()), true
	}
}

// Margin is how long before the end of its lease a holder's deadline is.
func Margin(ttl time.Duration) time.Duration { return margin(ttl) }

// KnowsCancelKey reports whether a context cut off by context.WithoutCancel is recognized even if
// it has a deadline of its own.
func KnowsCancelKey() bool { return cancelKey != nil }

// GiveUpPlace does what l's last waiter for key does if it got the turn as it gave up: nobody takes
// over the place in b's queue.
func (l *Locker) GiveUpPlace(b driver.Backend, key string, s driver.Subscription) {
	id := entryID{key: key}
	e := &entry{id: id, shard: l.shard(key), backend: b, subscription: s, placed: true}
	e.waitQueue = &e.ownQueue
	e.shard.mu.Lock()
	e.shard.entries[id] = e
	e.shard.mu.Unlock()
	l.wakeNext(e)
}

// InUse returns how many callees are inside the delegated holds that k knows, or wait for them.
func (k *Keyring) InUse() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.inUse {
		n += max(d.users, 1)
	}
	return n
}

// ByItself makes l look like the only Locker of its process when deadlocks are searched for. It
// must be called before the first lock.
func (l *Locker) ByItself() { l.waits = newNestedWaits() }
