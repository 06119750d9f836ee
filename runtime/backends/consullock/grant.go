package consullock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A lock goes to the next in line without a question: the place in the queue says
// for which acquisition, and on which session, the lock may be taken. A release
// makes it that one's, in the transaction that frees it, and the blocking query
// of the other process tells: so it costs the way of a notice, and not that and a
// transaction.
//
// A session lasts, and its process may hang or have died. So a grant counts little
// as long as the line stands at the head of the queue, which the release leaves
// there: whoever sees it there for grantLimit takes lock and place away. The
// grantee takes its line out, soon after it began; until then its lease is over by
// itself at grantLimit after an instant at which the lock was surely not its own,
// so before the others take it. Both are conditional on the queue as it was, so
// one of them alone succeeds.
//
// An offer is conditional on the fence of its session, so that one without an
// answer can be undone as an attempt to acquire can; and it is withdrawn on the
// condition that the lock is as it was seen, so that no grant goes by unnoticed.
// A queue goes with the session of whoever began it, and a grant in it then counts
// as confirmed: one who has died just then keeps the others for its session.

const (
	// grantLimit is how long a lock is kept for whom it was given to. Whoever waits
	// looks once a second, so half of it is left when the notice comes.
	grantLimit = 2 * time.Second
	// confirmAfter is when a grantee says that it is there: a hold that is over
	// sooner says so by its release, in one transaction.
	confirmAfter = 5 * time.Millisecond
	// plainReleases is one in how many releases leaves the lock free though somebody
	// of ours is next: the clients of api.Lock, who stand in no queue, have their
	// chance in a free moment alone. Once one has had the lock its key stays, and is
	// given to nobody. Drawn, not counted: a count would be one more thing to hand
	// on, and one of each process could be in step with its turns.
	plainReleases = 10
)

// granted reports whether the lock was given to the head of the queue, which has
// not said that it is there.
func (v *seen) granted() bool {
	head := v.queue.head()
	return head.id != "" && v.heldBy(head.id) && v.pair.Session == head.session
}

// offer is what an acquisition has offered.
type offer struct {
	session *session
	since   driver.Instant // the lock was not given to it before
	after   uint64         // nor at this index
}

// age is how long it is since somebody looked whether it was taken up.
func (o *offer) age() time.Duration { return -o.since.Left() }

// line returns what the acquisition has to say in the queue. It offers to be given
// the lock on s if that lasts, and if somebody listens, or will after the first
// attempt.
func (t *taking) line(ctx context.Context, s *session) line {
	b, a := t.backend, t.acquisition
	b.mu.Lock()
	_, again := b.offers[a.ID]
	w := b.watches[a.Key]
	b.mu.Unlock()
	switch {
	case a.NoRenewal, strings.ContainsAny(a.ID, " \n"), again && w == nil, s.reach(ctx, driver.Now().Add(a.TTL)) != nil:
		return line{name: t.process}
	}
	return line{name: t.process, id: a.ID, session: s.id}
}

// offered notes that what a offers may be at the server. It counts from the look
// before: one that was sent earlier, without an answer, may have been taken up just
// before this one is.
func (b *Backend) offered(a *driver.Acquisition, s *session, v *seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.purge()
	b.offers[a.ID] = &offer{session: s, since: v.asked, after: max(v.index(), v.queue.index)}
}

// placed notes that what a offers is at the server, since index: a grant that is
// told late, of before, was to a line of it that was taken out since.
func (b *Backend) placed(a *driver.Acquisition, index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.offers[a.ID]; o != nil {
		o.after = max(o.after, index)
	}
}

// notYet notes that the lock was not given to the acquisition when v was seen; nor
// can it be, by its line, if that is not there.
func (b *Backend) notYet(id string, v *seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := b.offers[id]; {
	case o == nil:
	case v.queue.place(process(id)) < 0:
		delete(b.offers, id)
	default:
		o.since, o.after = v.asked, max(o.after, v.index(), v.queue.index)
	}
}

func (b *Backend) noOffer(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.offers, id)
}

// takeUp takes o off the acquisition, and reports whether it was still there.
func (b *Backend) takeUp(id string, o *offer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.offers[id] != o {
		return false
	}
	delete(b.offers, id)
	return true
}

// begun reports whether the acquisition has a lease here; if not, it can't begin any
// more by what it was given, unless it asks for that. The offer goes first: of two
// that run at once, claim finds it gone, or its lease is found here.
func (b *Backend) begun(id string) bool {
	b.noOffer(id)
	b.mu.Lock()
	all := b.living()
	b.mu.Unlock()
	return slices.ContainsFunc(all, func(s *session) bool { return s.holds(id) })
}

// claim returns the lease that the acquisition was given, as its watch has told;
// nil if there is none, or if too little is left of its time to begin by it.
func (t *taking) claim() *lease {
	b, a := t.backend, t.acquisition
	b.mu.Lock()
	o, w := b.offers[a.ID], b.watches[a.Key]
	if o == nil || w == nil || !w.gave(a.ID, o) {
		b.mu.Unlock()
		return nil
	}
	pair, s := *w.pair, o.session
	b.mu.Unlock()

	limit := min(grantLimit, a.TTL)
	// The Locker leaves a margin for the clocks of what is left; this is that of
	// what has gone by.
	until := o.since.Add(limit).Add(o.since.Left() / 100)
	s.mu.Lock()
	over := s.over
	if s.deadline.Left() < until.Left() {
		until = s.deadline
	}
	s.mu.Unlock()
	left := until.Left()
	if over || left < limit/2 {
		return nil
	}
	l := t.lease(s, &pair, until, left)
	l.unsettled.Store(true)
	if !b.takeUp(a.ID, o) { // whoever takes it back may not have seen l
		b.noLookout(l)
		s.drop(l)
		return nil
	}
	ttl := a.TTL
	l.confirming = time.AfterFunc(b.confirms, func() {
		b.background(func(ctx context.Context) { _ = l.confirm(ctx, ttl) }) // else the watchdog does
	})
	return l
}

// gave reports whether what was last heard of the lock is that it was given to
// the acquisition by o: not by one that was taken away since. The Backend is
// locked.
func (w *watch) gave(id string, o *offer) bool {
	p := w.pair
	return p != nil && p.Session == o.session.id && string(p.Value) == id &&
		p.Flags == lockFlag && p.CreateIndex == p.ModifyIndex && p.ModifyIndex > o.after
}

// granting returns what releases the lock to the next in line, and confirms that
// it was given to us if we have not; nil if a plain release will do. A queue that
// was seen to be empty may have filled; one that was not is taken as it was, for a
// while: should somebody have come or gone since, that costs a transaction in vain.
func (l *lease) granting(ctx context.Context) ops {
	p, q, looked, ours := l.state()
	if !ours {
		return nil
	}
	age, empty := time.Since(looked), len(q.lines) == 0
	if age >= lookNoMore || empty && (age >= contested || l.queued || l.unsettled.Load()) {
		l.backend.lookAt(ctx, []*lease{l})
		_, q, _, _ = l.state()
	}
	rest := q.withoutOffer(l.id)
	var next line
	if len(rest) > 0 && !l.backend.plainly() {
		next = rest[0]
	}
	if next.id == "" && len(rest) == len(q.lines) {
		return nil
	}
	t := append(q.becoming(p.Key, rest), freeing(&p, true)...)
	if next.id != "" {
		t = append(t, kv(api.KVLock, api.KVTxnOp{Key: p.Key, Session: next.session, Flags: lockFlag, Value: []byte(next.id)}))
	}
	return t
}

// state returns the lock and its queue as they were last seen, and whether the
// lock's key is ours to delete.
func (l *lease) state() (p api.KVPair, q queue, looked time.Time, ours bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *l.pair, l.queue, l.looked, l.made && l.untouched()
}

// confirm says that we are there, and makes the lease one of ttl.
func (l *lease) confirm(ctx context.Context, ttl time.Duration) error {
	until := driver.Now().Add(ttl)
	if err := l.session.reach(ctx, until); err != nil {
		return l.renewalError(err)
	}
	if err := l.settle(ctx); err != nil {
		return err
	}
	l.extend(until, ttl)
	return nil
}

// settle takes our line out of the queue, if the lock was given to us and it is
// still there. ErrLost says that it was taken away.
func (l *lease) settle(ctx context.Context) error {
	if !l.unsettled.Load() {
		return nil
	}
	select {
	case l.settling <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := l.settleOnce(ctx)
	<-l.settling
	if errors.Is(err, driver.ErrLost) {
		l.lost.Store(true)
		if look := l.look.Load(); look != nil {
			(*look)()
		}
	}
	return err
}

func (l *lease) settleOnce(ctx context.Context) error {
	for l.unsettled.Load() {
		v, err := l.sight(ctx)
		if err != nil {
			return err
		}
		err = l.backend.confirm(ctx, v, v.queue.withoutOffer(l.id))
		switch {
		case err == nil:
			l.mu.Lock()
			l.queue, l.looked = v.queue, time.Now()
			l.mu.Unlock()
			l.unsettled.Store(false)
		case !errors.Is(err, errMoved) && !errors.Is(err, errNoAnswer):
			return err
		case !pause(ctx, rand.N(time.Millisecond)):
			return ctx.Err()
		}
	}
	return nil
}

// confirm leaves these lines in the queue that was seen, if the lock is still as
// it was; and v is how the queue is then.
func (b *Backend) confirm(ctx context.Context, v *seen, lines []line) error {
	if slices.Equal(lines, v.queue.lines) {
		return nil
	}
	p, err := b.write(ctx, append(ops{unchanged(v.key, v.index())}, v.queue.becoming(v.key, lines)...))
	if err != nil {
		return err
	}
	v.queue = queue{}
	if len(lines) > 0 && p != nil {
		v.queue = queue{lines: lines, index: p.ModifyIndex}
	}
	return nil
}

// withdraw undoes what was seen of an acquisition: its lock is freed, and its
// offer goes; with the place, if a.Queue says so, unless that is of a later one.
// The lock goes with the place also if it was given to an earlier one of them:
// without the line it would look as if somebody had confirmed that. But where a
// Locker knows this Backend by two names, that one may have begun, and confirms it.
func (b *Backend) withdraw(ctx context.Context, v *seen, a *driver.Acquisition) error {
	held := v.heldBy(a.ID)
	lines := slices.Clone(v.queue.lines)
	if at := v.queue.place(process(a.ID)); at >= 0 {
		switch l := lines[at]; {
		case !a.Queue && l.id == a.ID && (!a.MayHaveRun || b.waiting(v.key, l.name)):
			lines[at] = line{name: l.name}
		case !a.Queue && l.id == a.ID: // it may have come after whoever used the place had left it
			lines = slices.Delete(lines, at, at+1)
		case !a.Queue, a.BegunBefore(l.id):
		case at == 0 && v.granted() && l.id != a.ID && b.begun(l.id):
		default:
			lines = slices.Delete(lines, at, at+1)
			held = held || at == 0 && v.granted()
		}
	}
	left := slices.Equal(lines, v.queue.lines)
	var t ops
	if !left {
		t = v.queue.becoming(v.key, lines)
	}
	switch {
	case held:
		t = append(t, b.freeing(v)...)
	case left:
		return nil
	default:
		t = append(t, unchanged(v.key, v.index()))
	}
	_, err := b.write(ctx, t)
	return err
}
