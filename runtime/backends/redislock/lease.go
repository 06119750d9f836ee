package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lease implements [driver.Lease].
type lease struct {
	backend    *Backend
	keys       keys
	key, id    string
	first      uint64
	n          uint64 // of tokens to use
	reserved   uint64 // of tokens at the server
	wanted     atomic.Bool
	told       bool          // when it is wanted: see hold
	asked      time.Duration // by the acquisition
	ttl        atomic.Int64  // of the last renewal, ns
	deadline   atomic.Pointer[driver.Instant]
	unanswered bool        // some attempt to acquire had no answer: a copy may yet arrive
	entry      string      // what such a copy may have put in line, once the lease was over, or ""
	freed      atomic.Bool // perhaps: some attempt to release had no answer
}

func newLease(b *Backend, k keys, a *driver.Acquisition, first uint64) *lease {
	l := &lease{
		backend: b, keys: k, key: a.Key, id: a.ID, asked: a.TTL, unanswered: a.MayHaveRun,
		first: first, n: a.Tokens, reserved: a.Tokens,
	}
	if a.MayHaveRun && a.Queue {
		l.entry = queueEntry(a)
	}
	return l
}

func (l *lease) Deadline() driver.Instant { return *l.deadline.Load() }

// Term implements [driver.ProvisionalLease].
func (l *lease) Term() time.Duration { return time.Duration(l.ttl.Load()) }

// Wanted implements [driver.WantedLease].
func (l *lease) Wanted() bool { return l.wanted.Load() }

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// extend moves the deadline to ttl after sent, and never back: the script
// shortens no lease, and answers may come out of order.
func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	next := sent.Add(ttl.Truncate(time.Millisecond)) // as the server was told
	for {
		old := l.deadline.Load()
		if old != nil && old.Left() > next.Left() {
			return
		}
		if l.deadline.CompareAndSwap(old, &next) {
			l.ttl.Store(int64(ttl))
			return
		}
	}
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	return l.release(ctx, l.freeing(last), nil)
}

// freeing returns what a release of l says.
func (l *lease) freeing(last uint64) freeing {
	f := freeing{entry: l.entry, tombstone: tombstone(l.unanswered, l.asked)}
	if l.reserved > 1 { // a lone token is the one that was reserved
		f.last = strconv.FormatUint(last, 10)
	}
	return f
}

func (l *lease) release(ctx context.Context, f freeing, began *attempt) error {
	freedBefore := l.freed.Load()
	l.backend.subscriber.letGo(l)
	freed, unanswered, err := l.backend.free(ctx, l.key, f.request(l.keys, l.id), f.tombstone, began)
	if unanswered {
		l.freed.Store(true)
	}
	if err != nil {
		if errors.Is(err, driver.ErrConflict) {
			return driver.ErrLost // something else lives at the key
		}
		return err
	}
	if freed.reply.kind != ':' {
		return fmt.Errorf("the server's answer to a lock script makes no sense: %v", freed.reply)
	}
	if freed.reply.number == 0 && !freedBefore && !unanswered {
		return driver.ErrLost
	}
	// Freed, or freed before by an attempt whose answer was lost.
	return nil
}

// freeing is what release.lua is told beside the lock and its owner.
type freeing struct {
	last      string        // token used, "-<n>" if none of n was, "" if it is the one reserved
	entry     string        // in the queue, to take out, or ""
	tombstone time.Duration // 0: none
}

// request returns the request that frees k of id.
func (f freeing) request(k keys, id string) request {
	r := request{
		script: releaseScript,
		keys:   [4]string{k.lock, k.queue, k.token},
		nkeys:  3,
		args:   [5]string{id, k.channel, f.last, f.entry},
	}
	if f.tombstone > 0 {
		r.keys[3], r.nkeys = k.undone(id), 4
		r.args[4] = strconv.FormatInt(f.tombstone.Milliseconds(), 10)
	}
	for i, a := range r.args {
		if a != "" {
			r.nargs = i + 1
		}
	}
	return r
}
