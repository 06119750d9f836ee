package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

func (l *lease) Release(ctx context.Context, last uint64) error {
	return l.release(ctx, l.releaseCall(last))
}

// releaseCall returns the call that frees l. From then on l does not learn that it is wanted.
func (l *lease) releaseCall(last uint64) *call {
	l.backend.subscriber.forget(l.id)
	f := releaseArgs{entry: l.entry, unanswered: l.unanswered, ttl: l.acquireTTL}
	if l.reserved > 1 { // a lone token is the one that was reserved
		f.last = strconv.FormatUint(last, 10)
	}
	return f.call(l.keys, l.id)
}

func (l *lease) release(ctx context.Context, first *call) error {
	freedBefore := l.mayBeFreed.Load()
	c, unanswered, err := l.backend.run(ctx, first)
	if unanswered {
		l.mayBeFreed.Store(true)
	}
	if err == nil {
		err = c.reply.checkOwned()
	}
	switch {
	case errors.Is(err, driver.ErrConflict):
		return driver.ErrLost // something else lives at the key
	case errors.Is(err, driver.ErrLost) && (freedBefore || unanswered):
		return nil // freed by an attempt whose answer was lost
	}
	return err
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	k, err := keysOf(a.Key)
	if err != nil {
		return nil //nolint:nilerr // an invalid key was never sent
	}
	b.subscriber.undone(a)
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	f := releaseArgs{last: "-" + strconv.FormatUint(a.Tokens, 10), entry: queueEntry(a), unanswered: a.MayHaveRun, ttl: a.TTL}
	_, _, err = b.run(ctx, f.call(k, a.ID))
	if errors.Is(err, driver.ErrConflict) {
		return nil // something else is at the key, and the rest was undone
	}
	return err
}

// tombstoneMargin is how long after its lease's length an attempt without an
// answer may still reach the server and must find itself undone.
const tombstoneMargin = time.Minute

// releaseArgs are the arguments of release.lua beside the lock and its owner.
type releaseArgs struct {
	last       string // token used, "-<n>" if none of n was, "" if it is the one reserved
	entry      string // in the queue, to take out, or ""
	unanswered bool   // an attempt to acquire may still arrive
	ttl        time.Duration
}

// call returns the call that frees k if id has it.
func (f releaseArgs) call(k keys, id string) *call {
	if !f.unanswered {
		c := releaseScript.on(k.lock, k.queue, k.token).with(id, k.channel, f.last, f.entry)
		c.oneKeySuffices = true
		return c
	}
	tombstone := f.ttl + tombstoneMargin
	c := releaseScript.on(k.lock, k.queue, k.token, k.undone(id)).with(id, k.channel, f.last, f.entry, ms(tombstone))
	c.oneKeySuffices, c.tombstone = true, tombstone
	return c
}

// While a slot of a Cluster is on its way, the keys of a lock are in two places,
// or count as such as long as one of them does not exist: servers refuse scripts
// of several keys then (TRYAGAIN), here and there. A script of one key they send
// to where that key is. So a lock is freed and renewed by its own key; it can't be
// taken until all of it has arrived.

// isSlotMoving reports whether err says that some keys of a call are elsewhere.
func isSlotMoving(err error) bool { return strings.Contains(err.Error(), "TRYAGAIN ") }

// withOneKey returns r, a release, an undo or a renewal, with the lock's own key alone. What is
// at the other keys expires: nobody in the queue is told, but asks again within a second, and
// unused tokens are not given back.
func (b *Backend) withOneKey(ctx context.Context, r request) (request, error) {
	r.nkeys, r.oneKeySuffices = 1, false
	if r.tombstone == 0 {
		return r, nil
	}
	return r, b.put(ctx, r.keys[3], "", r.tombstone) // first, so that no late acquire comes between
}
