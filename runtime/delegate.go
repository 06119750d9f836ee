package lock

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// DelegationKey is the key of a [Carrier] under which a delegation stands, written as
// http.Header writes it.
const DelegationKey = "Lockgen-Delegation"

// maxDelegation is the length of the longest delegation that is accepted, in bytes.
const maxDelegation = 16 << 10

// delegationFormat begins the signed text, so that no other message that was signed with the
// same key is taken for a delegation.
const delegationFormat = "lockgen-delegation-1\n"

// delegation is what is signed: the holds of the caller, and for how long.
type delegation struct {
	Audience string          `json:"aud"`
	At       int64           `json:"at"`                // when it was written, by the caller's wall clock, in ns
	Left     time.Duration   `json:"left"`              // from then until the first of the leases ends
	Several  bool            `json:"several,omitempty"` // the innermost acquisition took several
	Holds    []delegatedHold `json:"holds"`             // the outermost first
}

type delegatedHold struct {
	ID      string `json:"id"`
	Key     string `json:"key"`
	Prefix  string `json:"prefix,omitempty"` // Options.Prefix
	Backend string `json:"backend,omitempty"`
	Token   uint64 `json:"token,string"`
	Method  string `json:"method,omitempty"`
	Kind    uint8  `json:"kind,omitempty"` // a driver.Kind
	Permits int    `json:"permits,omitempty"`
	Weight  int    `json:"weight,omitempty"`
}

// Inject writes into c a delegation of the locks that ctx owns, for one request to the
// service that audience names. The callee, if it calls [Extract], works inside of them:
// the same tokens, and a nested call with the same key enters. It can neither renew nor
// release them. The delegation ends when the present leases of the locks end, even if the
// caller renews them: with a ttl of 30 s a callee has 20 s or more.
// The names of backends must mean the same on both sides.
//
// The caller must hold its locks until the callee has returned. If it releases them sooner,
// because it was cancelled or timed out, the callee does not learn of it and works until the
// delegation ends, at the same time as the next holder: then only the fencing token protects
// the data. Nor does a callee learn of [Hold.Downgrade].
//
// If ctx owns nothing, Inject writes nothing and returns nil. If one of the locks was lost,
// or the locked method has returned, it returns an error that wraps [ErrLost]. It does no
// I/O.
func Inject(ctx context.Context, c Carrier, s *Signer, audience string) error {
	fail := func(err error) error { return &Error{Op: "inject", Err: err} }
	if s == nil || audience == "" {
		return fail(invalidf("it needs a Signer and the audience, the name that the callee's Keyring has"))
	}
	innermost := owned(ctx)
	if innermost == nil {
		return nil
	}
	if err := Check(ctx); err != nil {
		return fail(err)
	}
	d := &delegation{Audience: audience, Several: innermost.several}
	now := time.Now()
	d.At, d.Left = now.UnixNano(), maxTTL
	seen := map[*hold]bool{}
	for f := innermost; f != nil; f = f.outer {
		h := f.hold()
		if seen[h] {
			continue
		}
		seen[h] = true
		d.Left = min(d.Left, h.lease.deadline().LeftAt(now))
		d.Holds = append([]delegatedHold{h.delegate()}, d.Holds...)
	}
	payload, err := json.Marshal(d)
	if err != nil {
		return fail(err)
	}
	message := s.keyID + "." + base64.RawURLEncoding.EncodeToString(payload)
	signature := base64.RawURLEncoding.EncodeToString(s.sign([]byte(delegationFormat + message)))
	if n := len(message) + 1 + len(signature); n > maxDelegation {
		return fail(invalidf("a delegation of %d locks has %d bytes, and at most %d go; delegate fewer locks", len(d.Holds), n, maxDelegation))
	}
	c.Set(DelegationKey, message+"."+signature)
	return nil
}

// delegate describes h. The ID of a hold is always the same, and no other hold has it. A
// callee that delegates further appends its audience.
func (h *hold) delegate() delegatedHold {
	p := h.policy
	d := delegatedHold{
		Key: h.entry.id.key, Backend: h.entry.id.backend, Token: h.token, Method: p.Method,
		Kind: uint8(h.kindNow()), Permits: p.Permits, Weight: p.Weight,
	}
	if lease, ok := h.lease.Lease.(*delegatedLease); ok {
		d.ID, d.Prefix = lease.of.ID+"/"+lease.keyring.audience, lease.of.Prefix
		return d
	}
	d.Prefix = h.locker.prefix
	d.ID = fmt.Sprintf("%s:%d:%d", h.lease.acquisition.ID, h.token, h.began.Sub(driver.Instant{}))
	if p.kind() == driver.Read { // holds that share a lease may have begun at the same moment
		d.ID += fmt.Sprintf(":%x", maphash.Comparable(h.locker.seed, h))
	}
	return d
}

// canBeEnteredBy reports whether a call by l may enter h again: it is l's, or was delegated to a
// Locker with the same prefix.
func (h *hold) canBeEnteredBy(l *Locker) bool {
	if h.locker != nil {
		return h.locker == l
	}
	return h.lease.Lease.(*delegatedLease).of.Prefix == l.prefix
}

// policy returns the hold's policy, with the fields that a nested call is checked against.
func (d *delegatedHold) policy() *Policy {
	kind := driver.Kind(d.Kind)
	return &Policy{
		Method: d.Method, Backend: d.Backend, Permits: d.Permits, Weight: d.Weight,
		Read: kind == driver.Read, Write: kind == driver.Write, Fair: kind == driver.Fair, Once: kind == driver.Once,
	}
}

// Extract returns a context that is inside the locks that [Inject] delegated, and a Hold.
// Release it in a defer, as after an acquire: the release ends the context, and adds [ErrLost]
// to the request's error if the delegation was over before. It releases no lock. Without a
// delegation in c Extract returns ctx and a nil Hold, on which Release does nothing.
//
// Under the context [Token], [TokenOf] and [Owns] answer as under the caller's. At the end
// of the delegation [Check] and the context's cause say ErrLost. A nested acquire of the
// key, by any Locker of the process with the caller's Options.Prefix, enters without a
// command if its policy is Reentrant. A [Cond] can't be used.
//
// One callee at a time is inside a hold of the caller: Extract blocks while another one is,
// until ctx or the delegation ends. A request may be sent again with the same delegation
// until that ends.
//
// The delegation ends with the caller's lease, by the caller's wall clock, less the Keyring's
// Skew. While the clocks differ by less than Skew, no callee works longer than that lease.
// Whatever the clocks say, the delegation lasts at most for the time that was left when it was
// written, counted from when it is read here: it ends late at most by the time of the request.
//
// An error that wraps [ErrInvalid] says that the delegation is incomplete, is signed by a
// key that the Keyring does not have, or is for another audience, or that the clocks
// differ by more than Skew; ErrLost that its time is over; [ErrNotAcquired] that ctx ended.
func Extract(ctx context.Context, c Carrier, k *Keyring) (context.Context, *Hold, error) {
	fail := func(err error) (context.Context, *Hold, error) { return ctx, nil, &Error{Op: "extract", Err: err} }
	if k == nil {
		return fail(invalidf("the Keyring is nil; make one with NewKeyring"))
	}
	text := c.Get(DelegationKey)
	if text == "" {
		return ctx, nil, nil
	}
	d, err := k.read(text)
	if err != nil {
		return fail(err)
	}
	now := time.Now()
	left, err := d.left(now, k.skew)
	if err != nil {
		return fail(err)
	}
	call := &delegatedCall{keyring: k, until: driver.At(now).Add(left), method: &methodContext{caller: ctx}}
	held, err := call.enter(owned(ctx), d)
	if err != nil {
		call.end(err)
		return fail(err)
	}
	return held.frame.ctx, held, nil
}

// read returns the delegation in text, if a key of k signed it for k's audience.
func (k *Keyring) read(text string) (*delegation, error) {
	cut := strings.LastIndexByte(text, '.')
	if cut < 0 || len(text) > maxDelegation {
		return nil, invalidf("the delegation is incomplete, or too long")
	}
	message := text[:cut]
	keyID, body, _ := strings.Cut(message, ".")
	signature, err := base64.RawURLEncoding.DecodeString(text[cut+1:])
	v := k.verifiers[keyID]
	switch {
	case v == nil:
		return nil, invalidf("the delegation is signed by the key %q, which is not in the Keyring; add its Verifier if the caller may delegate", keyID)
	case err != nil || !v.verify([]byte(delegationFormat+message), signature):
		return nil, invalidf("the delegation's signature is not that of the key %q; give caller and callee the same key", keyID)
	}
	d := &delegation{}
	payload, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(payload, d)
	}
	switch {
	case err != nil || len(d.Holds) == 0:
		return nil, because(ErrInvalid, errors.Join(errors.New("the delegation can't be read"), err))
	case d.Audience != k.audience:
		return nil, invalidf("the delegation is for %q, and this Keyring's audience is %q; give that to Inject", d.Audience, k.audience)
	}
	return d, nil
}

// left returns for how long d may be used from now on.
func (d *delegation) left(now time.Time, skew time.Duration) (time.Duration, error) {
	age := now.Sub(time.Unix(0, d.At))
	left := min(d.Left-skew-age, d.Left)
	switch {
	case -age > skew:
		return 0, invalidf("the delegation was written %v from now; have the clocks of caller and callee agree within %v, or raise Skew", -age, skew)
	case left <= 0:
		return 0, because(ErrLost, errors.New("the delegation is over: it was written "+age.String()+" ago, by the caller's clock, for "+
			d.Left.String()+" less "+skew.String()+"; use a longer ttl, or have clocks agree and lower Skew"))
	}
	return left, nil
}

// delegatedCall is one callee inside the holds of one delegation.
type delegatedCall struct {
	keyring *Keyring
	until   driver.Instant
	method  *methodContext
	timer   *time.Timer
	mu      sync.Mutex // guards timer
}

// delegatedLease stands for the caller's lease, which a callee can neither renew nor release.
type delegatedLease struct {
	*delegatedCall
	of *delegatedHold
}

func (l *delegatedLease) Deadline() driver.Instant                     { return l.until }
func (l *delegatedLease) Tokens() (first, n uint64)                    { return l.of.Token, 1 }
func (l *delegatedLease) Renew(context.Context, time.Duration) error   { return driver.ErrLost }
func (l *delegatedLease) Release(_ context.Context, last uint64) error { return driver.ErrLost }

// enter enters the holds of d, the outermost first, as all callers do.
func (c *delegatedCall) enter(outer *frame, d *delegation) (*Hold, error) {
	c.watch()
	all := &Hold{frame: outer, method: c.method}
	for i := range d.Holds {
		one, err := c.enterOne(&d.Holds[i])
		if err != nil {
			releaseAll(endedContext, all.holds, nil)
			return nil, err
		}
		all.add(one)
	}
	held := all
	if len(all.holds) == 1 {
		held = all.holds[0]
	}
	held.frame.several = d.Several
	held.frame.ctx = &ownedContext{Context: c.method, frame: held.frame}
	return held, nil
}

func (c *delegatedCall) enterOne(d *delegatedHold) (*Hold, error) {
	in := c.keyring.use(d.ID)
	if err := in.frame.slot().enter(c.method, defaultPolicy, time.Time{}); err != nil {
		c.keyring.unuse(d.ID)
		if c.until.Left() <= 0 {
			err = because(ErrLost, errLeaseOver)
		}
		return nil, err
	}
	h := &hold{
		policy: d.policy(), token: d.Token, began: driver.Now(),
		entry: &entry{id: entryID{backend: d.Backend, key: d.Key, kind: driver.Kind(d.Kind)}},
		lease: &heldLease{Lease: &delegatedLease{c, d}},
	}
	one := &Hold{frame: &frame{}, parent: &in.frame}
	one.frame.current.Store(h)
	if c.until.Left() <= 0 { // the delegation ended while enter waited
		_ = one.releaseOne(endedContext)
		return nil, because(ErrLost, errLeaseOver)
	}
	return one, nil
}

// watch ends the context when the delegation is over. It looks now and then, because
// timers stand still while the machine sleeps.
func (c *delegatedCall) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(min(c.until.Left(), noticeSleep), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if left := c.until.Left(); left > 0 {
			c.timer.Reset(min(left, noticeSleep))
			return
		}
		c.method.end(&Error{Op: "hold", Err: because(ErrLost, errLeaseOver)})
	})
}

// end ends the context, because the callee has returned or could not enter.
func (c *delegatedCall) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.method.end(cause)
}

// leaveDelegated leaves a delegated hold: a re-entry into it, or the callee's first entry,
// which was by a frame of the Keyring.
func (h *Hold) leaveDelegated(hold *hold) error {
	lease := hold.lease.Lease.(*delegatedLease)
	if h.parent.hold() != nil {
		return h.leaveReentry()
	}
	lease.end(errReturned)
	err := h.leaveReentry()
	lease.keyring.unuse(lease.of.ID)
	return err
}
