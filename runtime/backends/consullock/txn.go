package consullock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

var (
	// errNoAnswer says that what was sent may have been done, or may yet be.
	errNoAnswer = errors.New("no answer from Consul")
	// errMoved says that a transaction did nothing, because what it was
	// conditional on was no longer so.
	errMoved = errors.New("changed meanwhile")
	// errOwn is errMoved because of what this process did, which says nothing of others.
	errOwn = fmt.Errorf("%w by this process", errMoved)
	// errUndone says that a transaction came after its undo.
	errUndone = errors.New("the acquisition was undone already")
	// errNoSession says that the session has ended.
	errNoSession = errors.New("the session has ended")
	// errDelayed says that the key is shut. For how long is known to the server alone.
	errDelayed = fmt.Errorf("%w: it is shut by Consul's lock-delay: the session that held it ended without a release, "+
		"and the key stays shut for the lock-delay of that session (15s unless set)", &driver.HeldError{})
)

// answerWithin is for how long one request waits for its answer: longer than
// the 7 s for which a server keeps it while there is no leader.
const answerWithin = 8 * time.Second

// asking returns a context for one request of a call with ctx: it ends as well when the
// answer has taken too long, and when the Backend closes.
func (b *Backend) asking(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, done := b.life.Within(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	return ctx, func() {
		cancel()
		done()
	}
}

type ops = api.TxnOps

func kv(verb api.KVOp, pair api.KVTxnOp) *api.TxnOp {
	pair.Verb = verb
	return &api.TxnOp{KV: &pair}
}

// unchanged is the condition that key is as it was seen: at index, or absent if
// that is 0.
func unchanged(key string, index uint64) *api.TxnOp {
	if index == 0 {
		return kv(api.KVCheckNotExists, api.KVTxnOp{Key: key})
	}
	return kv(api.KVCheckIndex, api.KVTxnOp{Key: key, Index: index})
}

// reply is what a transaction has read and written.
type reply []*api.KVPair

func replyOf(answer *api.TxnResponse) (r reply) {
	for _, result := range answer.Results {
		if result.KV != nil {
			r = append(r, result.KV)
		}
	}
	return r
}

// pair returns what the last operation on key left there, nil if none told.
func (r reply) pair(key string) *api.KVPair {
	for _, p := range slices.Backward(r) {
		if p.Key == key {
			return p
		}
	}
	return nil
}

// at returns what was read at key, nil if there is nothing.
func (r reply) at(key string) (*api.KVPair, error) {
	p := r.pair(key)
	switch {
	case p == nil:
		return nil, fmt.Errorf("the token may not read %s", key)
	case p.ModifyIndex == 0:
		return nil, nil
	}
	return p, nil
}

// queue returns the entries of key's queue that the transaction has read, in their order.
func (r reply) queue(key string) (queue []*api.KVPair) {
	for _, p := range r {
		if strings.HasPrefix(p.Key, queuePrefix(key)) {
			queue = append(queue, p)
		}
	}
	slices.SortFunc(queue, func(a, b *api.KVPair) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	return queue
}

// write sends a transaction that changes something.
func (b *Backend) write(ctx context.Context, t ops) (reply, error) {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil || b.invalid != nil {
		return nil, cmp.Or(b.invalid, engine.OrClosed(ctx, err))
	}
	done, answer, _, err := b.client.Txn().Txn(t, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, told(engine.OrClosed(ctx, err))
	case !done:
		return nil, refusal(answer.Errors)
	}
	return replyOf(answer), nil
}

// read sends a transaction that only looks. It returns as well what of it was not so. Without
// consistency a server that has just become the leader would answer by a part of its log.
func (b *Backend) read(ctx context.Context, t ops) (reply, api.TxnErrors, error) {
	ctx, cancel := b.asking(ctx)
	defer cancel()
	if b.invalid != nil {
		return nil, nil, b.invalid
	}
	_, answer, _, err := b.client.Txn().Txn(t, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return nil, nil, advised(engine.OrClosed(ctx, err))
	}
	for _, e := range answer.Errors {
		if strings.Contains(e.What, "Permission denied") {
			return nil, nil, advised(errors.New(e.What))
		}
	}
	return replyOf(answer), answer.Errors, nil
}

// get returns what is at key, nil if there is nothing.
func (b *Backend) get(ctx context.Context, key string) (*api.KVPair, error) {
	r, _, err := b.read(ctx, ops{kv(api.KVGetOrEmpty, api.KVTxnOp{Key: key})})
	if err != nil {
		return nil, err
	}
	return r.at(key)
}

// refusal is why a transaction was not done: the weightiest of its reasons.
func refusal(reasons api.TxnErrors) error {
	var all []string
	for _, e := range reasons {
		all = append(all, e.What)
	}
	what := strings.Join(all, "; ")
	switch {
	case strings.Contains(what, "Permission denied"):
		return advised(errors.New(what))
	case strings.Contains(what, "due to lock delay"):
		return errDelayed
	case strings.Contains(what, "invalid session"):
		return errNoSession
	case strings.Contains(what, `"`+tombstoneOf("")):
		return errUndone
	}
	for _, known := range []string{"exists", "doesn't exist", "index", "session check", "lock is already held", "isn't held"} {
		if strings.Contains(what, known) {
			return fmt.Errorf("%w: %s", errMoved, what)
		}
	}
	return errors.New(what)
}

// definite are the words of errors by which a server says that it did nothing.
var definite = []string{
	"ACL not found", "Permission denied", "No cluster leader", "too many concurrent connections",
	"rate limit exceeded", "too large", "Failed to parse body", "must be between", "Must provide",
	"HTTP request to an HTTPS server", "No path to datacenter",
}

// told says of an error of the client whether the request may have been done.
func told(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "remote error"),
		errors.As(err, &dns), errors.As(err, &certificate), errors.As(err, &header),
		slices.ContainsFunc(definite, func(word string) bool { return strings.Contains(err.Error(), word) }):
		return advised(err)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// advised adds to an error how to mend it, where that is known.
func advised(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "ACL not found"):
		return fmt.Errorf("%w; Consul does not know the client's ACL token (api.Config.Token, CONSUL_HTTP_TOKEN)", err)
	case strings.Contains(text, "Permission denied"):
		return fmt.Errorf("%w; the token needs session:write, and key:write for the lock's key and %s", err, ours)
	case strings.Contains(text, "connection refused"):
		return fmt.Errorf("%w; is there a Consul agent (api.Config.Address, CONSUL_HTTP_ADDR)?", err)
	case strings.Contains(text, "too many concurrent connections"):
		return fmt.Errorf("%w; see the agent's limits.http_max_conns_per_client", err)
	}
	return err
}

// seen is what a lock's key and its queue were at one moment.
type seen struct {
	key     string
	pair    *api.KVPair   // nil if there is none
	queue   []*api.KVPair // its entries in their order
	told    bool          // the lock was watched, and has become free
	assumed bool          // nobody has looked: it is likely to be so
}

// look reads the lock at key and its queue.
func (b *Backend) look(ctx context.Context, key string) (*seen, error) {
	r, _, err := b.read(ctx, ops{
		kv(api.KVGetOrEmpty, api.KVTxnOp{Key: key}),
		kv(api.KVGetTree, api.KVTxnOp{Key: queuePrefix(key)}),
	})
	if err != nil {
		return nil, err
	}
	v := &seen{key: key, queue: r.queue(key)}
	v.pair, err = r.at(key)
	return v, err
}

func (v *seen) index() uint64 {
	if v.pair == nil {
		return 0
	}
	return v.pair.ModifyIndex
}

// held reports whether somebody holds the lock, or what is there is none.
func (v *seen) held() bool {
	return v.pair != nil && (v.pair.Session != "" || v.pair.Flags != lockFlag)
}

func (v *seen) heldBy(id string) bool {
	return v.held() && v.pair.Flags == lockFlag && string(v.pair.Value) == id
}

// made reports whether the acquisition that holds the lock p has made the key, and nobody has
// written to it since.
func made(p *api.KVPair) bool { return p.CreateIndex == p.ModifyIndex }

// at returns where the process stands in the queue, -1 if nowhere.
func (v *seen) at(process string) int {
	return slices.IndexFunc(v.queue, func(e *api.KVPair) bool { return processOf(e) == process })
}

// ahead returns the entries before that of the process, all if it has none.
func (v *seen) ahead(process string) []*api.KVPair {
	if at := v.at(process); at >= 0 {
		return v.queue[:at]
	}
	return v.queue
}

// target returns what the process is to watch while it waits: the lock if it is the
// next to take it, or if clients of api.Lock use it; else the entry before its own.
func (v *seen) target(process string) target {
	ahead := v.ahead(process)
	if v.held() {
		ours := isID(string(v.pair.Value))
		if len(ahead) == 0 || !ours || !made(v.pair) {
			return target{key: v.key, index: v.pair.ModifyIndex, lock: true, ours: ours}
		}
	}
	if len(ahead) > 0 {
		before := ahead[len(ahead)-1]
		return target{key: before.Key, index: before.ModifyIndex}
	}
	return target{}
}

// freeing returns what frees the lock p as it is. A key that an acquisition of this package
// has made goes; any other stays, unlocked, as it is.
func freeing(p *api.KVPair) ops {
	if made(p) && isID(string(p.Value)) {
		return ops{
			// Servers that have lost their data count indexes anew; no session comes twice.
			kv(api.KVCheckSession, api.KVTxnOp{Key: p.Key, Session: p.Session}),
			kv(api.KVDeleteCAS, api.KVTxnOp{Key: p.Key, Index: p.ModifyIndex}),
		}
	}
	return ops{
		unchanged(p.Key, p.ModifyIndex),
		kv(api.KVUnlock, api.KVTxnOp{Key: p.Key, Session: p.Session, Flags: p.Flags, Value: p.Value}),
	}
}
