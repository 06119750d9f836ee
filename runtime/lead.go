package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// How long Lead waits before it campaigns again after a term that ended with an error.
const (
	campaignFirst = 100 * time.Millisecond
	campaignMax   = 10 * time.Second
)

// Leadership is who leads under a key.
type Leadership struct {
	Name  string        // Options.Name of its Locker
	ID    string        // of its hold at the engine
	Token uint64        // its fencing token: it tells one term from another
	Left  time.Duration // for how long its lease lasts, unless it is renewed
}

// Lead campaigns for key under p, which has Leader set, and calls lead when this process is
// the leader. The context of lead ends with cause [ErrLost] when the leadership is lost,
// before another can lead, and with cause [ErrClosed] when the Locker begins to close; it has
// the term's token. Lead resigns when lead returns, and then
//
//   - returns nil if lead returned nil while it led;
//   - campaigns again if lead returned an error or the leadership was lost, after a pause
//     of 100 ms, which doubles after each such term, up to 10 s. After a term that was
//     longer than the pause, or a campaign and term of more than 10 s, it is 100 ms again;
//   - returns an error once ctx ends, the Locker is closed, or the policy can't be right
//     ([ErrInvalid]); also if it meets something else at the key ([ErrConflict]), such as a
//     lock of another kind, or a deadlock ([ErrDeadlock]).
//
// An engine that can't be reached is asked again after the same pauses. lead must return when
// its context ends. If p has Try, Wait or Queue, Lead may also return [ErrNotAcquired].
func (l *Locker) Lead(ctx context.Context, p *Policy, key string, lead func(ctx context.Context) error) error {
	if p == nil || !p.Leader {
		return l.reject(ctx, &Policy{}, key, l.nowIfObserved(), invalidf("Lead needs a Policy with Leader"))
	}
	named := *p
	if named.name = ""; l != nil {
		named.name = l.name
	}
	bounded := p.Try || p.Wait > 0 || p.Queue > 0 // else ErrNotAcquired says that grants came too late
	pause := campaignFirst
	for {
		asked := time.Now()
		var began time.Time // of the term; zero where it was not elected
		err := l.Do(ctx, &named, key, func(ctx context.Context) error {
			began = time.Now()
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(l.openCtx, func() { cancel(ErrClosed) })()
			return lead(ctx)
		})
		led := !began.IsZero()
		switch {
		case led && err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case !led && (permanent(err) || errors.Is(err, ErrNotAcquired) && bounded):
			return err
		}
		if led && time.Since(began) > pause || time.Since(asked) > campaignMax {
			pause = campaignFirst
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(err, &Error{Op: "acquire", Method: p.Method, Key: key, Err: ctxEnded(ctx)})
		case <-l.openCtx.Done():
			return errors.Join(err, &Error{Op: "acquire", Method: p.Method, Key: key, Err: ErrClosed})
		}
		pause = min(2*pause, campaignMax)
	}
}

// permanent reports whether asking again can't help.
func permanent(err error) bool {
	return slices.ContainsFunc([]error{ErrInvalid, ErrClosed, ErrConflict, ErrDeadlock}, func(kind error) bool { return errors.Is(err, kind) })
}

// Leader returns who leads under key, of the locks that p names, or nil if nobody does. It
// asks the engine and takes no lock. What it returns may be over by the time that it is
// read: nobody may act as the leader because of it. An engine without a clock (etcd, Consul,
// ZooKeeper) can't tell that a leader has died: Leader names it until a ttl after l saw its
// last renewal, or first asked.
func (l *Locker) Leader(ctx context.Context, p *Policy, key string) (*Leadership, error) {
	if p == nil || !p.Leader {
		return nil, &Error{Op: "view", Key: key, Err: invalidf("Leader needs a Policy with Leader")}
	}
	p = l.complete(p)
	fail := func(err error) error { return &Error{Op: "view", Method: p.Method, Key: key, Err: err} }
	if err := l.validate(p, key); err != nil {
		return nil, fail(err)
	}
	if l.closed.Load() {
		return nil, fail(ErrClosed)
	}
	viewer, ok := l.backend(p.Backend).(driver.Viewer)
	if !ok {
		return nil, fail(invalidf("the backend %T can't tell who leads", l.backend(p.Backend)))
	}
	h, err := viewer.View(ctx, &driver.Acquisition{Key: l.prefix + key, ID: l.newID(l.numbers.Add(1)), TTL: p.ttl(), Tokens: 1, Mode: p.mode()})
	switch {
	case err != nil && errors.Is(err, ErrConflict):
		return nil, fail(because(ErrConflict, err))
	case err != nil:
		return nil, fail(because(ErrUnavailable, driver.Locate(l.backend(p.Backend), err)))
	case h == nil:
		return nil, nil
	}
	return &Leadership{Name: h.Name, ID: h.ID, Token: h.Token, Left: h.Left}, nil
}

// WatchLeader calls changed with who leads under key, and again whenever that has changed:
// with nil if nobody does. It asks the engine once a second, so that a leadership of less
// than that may pass unseen, and blocks until ctx ends or the Locker is closed. While the
// engine can't be reached, the last answer stands.
func (l *Locker) WatchLeader(ctx context.Context, p *Policy, key string, changed func(*Leadership)) error {
	var last *Leadership
	for first := true; ; {
		now, err := l.Leader(ctx, p, key)
		switch {
		case err != nil && permanent(err):
			return err
		case err == nil && (first || !now.same(last)):
			first, last = false, now
			changed(now)
		}
		select {
		case <-time.After(pollLimit):
		case <-ctx.Done():
			return fmt.Errorf("lock: watch %s: %w", key, ctx.Err())
		case <-l.openCtx.Done():
			return &Error{Op: "view", Method: p.Method, Key: key, Err: ErrClosed}
		}
	}
}

// same reports whether a and b are one term of one leader.
func (a *Leadership) same(b *Leadership) bool {
	return a == nil && b == nil || a != nil && b != nil && a.ID == b.ID
}
