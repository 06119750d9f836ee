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
	// errNoAnswer says that a request may have run, or may yet run.
	errNoAnswer = errors.New("no answer from Consul")
	// errChanged says that a transaction did nothing, because one of its conditions was not met.
	errChanged = errors.New("changed meanwhile")
	// errChangedByUs is errChanged by this process: others may not hold the lock.
	errChangedByUs = fmt.Errorf("%w by this process", errChanged)
	// errUndone says that a transaction arrived after its acquisition was undone.
	errUndone = errors.New("the acquisition was undone already")
	// errSessionEnded says that the session has ended.
	errSessionEnded = errors.New("the session has ended")
	// errDelayed says that Consul's lock-delay keeps the key shut. The server does not say for how
	// long.
	errDelayed = fmt.Errorf("%w: it is shut by Consul's lock-delay: the session that held it ended without a release, "+
		"and the key stays shut for the lock-delay of that session (15s unless set)", &driver.HeldError{})
)

// answerTimeout is how long one request waits for its answer: longer than the 7 s for which a
// server keeps a request while there is no leader.
const answerTimeout = 8 * time.Second

// requestContext returns a context for one request of a call with ctx. It ends with ctx, after
// answerTimeout, and when the Backend closes.
func (b *Backend) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, done := b.life.Within(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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

// unchanged is the condition that key is at index, or absent if that is 0.
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

// pair returns what the last operation on key left there, nil if the reply does not say.
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

// queue returns the entries of key's queue, in their order.
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
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil || b.invalid != nil {
		return nil, cmp.Or(b.invalid, engine.OrClosed(ctx, err))
	}
	done, answer, _, err := b.client.Txn().Txn(t, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return nil, sendError(engine.OrClosed(ctx, err))
	case !done:
		return nil, refusal(answer.Errors)
	}
	return replyOf(answer), nil
}

// read sends a transaction that only reads. It also returns which of its conditions were not met.
// Without consistency a server that has just become the leader would answer by a part of its log.
func (b *Backend) read(ctx context.Context, t ops) (reply, api.TxnErrors, error) {
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	if b.invalid != nil {
		return nil, nil, b.invalid
	}
	_, answer, _, err := b.client.Txn().Txn(t, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return nil, nil, explained(engine.OrClosed(ctx, err))
	}
	for _, e := range answer.Errors {
		if strings.Contains(e.What, "Permission denied") {
			return nil, nil, explained(errors.New(e.What))
		}
	}
	return replyOf(answer), answer.Errors, nil
}

// get returns the pair at key, nil if there is none.
func (b *Backend) get(ctx context.Context, key string) (*api.KVPair, error) {
	r, _, err := b.read(ctx, ops{kv(api.KVGetOrEmpty, api.KVTxnOp{Key: key})})
	if err != nil {
		return nil, err
	}
	return r.at(key)
}

// refusal returns the error of a transaction that was not done, by the most important of the
// reasons.
func refusal(reasons api.TxnErrors) error {
	var all []string
	for _, e := range reasons {
		all = append(all, e.What)
	}
	what := strings.Join(all, "; ")
	switch {
	case strings.Contains(what, "Permission denied"):
		return explained(errors.New(what))
	case strings.Contains(what, "due to lock delay"):
		return errDelayed
	case strings.Contains(what, "invalid session"):
		return errSessionEnded
	case strings.Contains(what, `"`+tombstoneOf("")):
		return errUndone
	}
	for _, known := range []string{"exists", "doesn't exist", "index", "session check", "lock is already held", "isn't held"} {
		if strings.Contains(what, known) {
			return fmt.Errorf("%w: %s", errChanged, what)
		}
	}
	return errors.New(what)
}

// notDone are the words of errors that say that the server did nothing.
var notDone = []string{
	"ACL not found", "Permission denied", "No cluster leader", "too many concurrent connections",
	"rate limit exceeded", "too large", "Failed to parse body", "must be between", "Must provide",
	"HTTP request to an HTTPS server", "No path to datacenter",
}

// sendError returns the error of a request that ended with err: it wraps errNoAnswer if the request
// may have run.
func sendError(err error) error {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "remote error"),
		errors.As(err, &dns), errors.As(err, &certificate), errors.As(err, &header),
		slices.ContainsFunc(notDone, func(word string) bool { return strings.Contains(err.Error(), word) }):
		return explained(err)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// explained adds to err how to mend it, where that is known.
func explained(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "ACL not found"):
		return fmt.Errorf("%w; Consul does not know the client's ACL token (api.Config.Token, CONSUL_HTTP_TOKEN)", err)
	case strings.Contains(text, "Permission denied"):
		return fmt.Errorf("%w; the token needs session:write, and key:write for the lock's key and %s", err, ownPrefix)
	case strings.Contains(text, "connection refused"):
		return fmt.Errorf("%w; is there a Consul agent (api.Config.Address, CONSUL_HTTP_ADDR)?", err)
	case strings.Contains(text, "too many concurrent connections"):
		return fmt.Errorf("%w; see the agent's limits.http_max_conns_per_client", err)
	}
	return err
}

// view is a lock and its queue at one moment.
type view struct {
	key     string
	pair    *api.KVPair   // the lock; nil if the key does not exist
	queue   []*api.KVPair // the entries in their order
	freed   bool          // the watch saw it become free, and did not read the queue
	assumed bool          // nothing was read: it is probably so
}

// readLock reads the lock at key and its queue.
func (b *Backend) readLock(ctx context.Context, key string) (*view, error) {
	r, _, err := b.read(ctx, ops{
		kv(api.KVGetOrEmpty, api.KVTxnOp{Key: key}),
		kv(api.KVGetTree, api.KVTxnOp{Key: queuePrefix(key)}),
	})
	if err != nil {
		return nil, err
	}
	v := &view{key: key, queue: r.queue(key)}
	v.pair, err = r.at(key)
	return v, err
}

func (v *view) index() uint64 {
	if v.pair == nil {
		return 0
	}
	return v.pair.ModifyIndex
}

// held reports whether somebody holds the lock, or the pair is no mutex.
func (v *view) held() bool {
	return v.pair != nil && (v.pair.Session != "" || v.pair.Flags != lockFlag)
}

func (v *view) heldBy(id string) bool {
	return v.held() && v.pair.Flags == lockFlag && string(v.pair.Value) == id
}

// createdByHolder reports whether the acquisition that holds the lock p created the key, and nobody
// has written to it since.
func createdByHolder(p *api.KVPair) bool { return p.CreateIndex == p.ModifyIndex }

// at returns the process's index in the queue, -1 if it has no entry.
func (v *view) at(process string) int {
	return slices.IndexFunc(v.queue, func(e *api.KVPair) bool { return processOf(e) == process })
}

// ahead returns the entries before that of the process, all if it has none.
func (v *view) ahead(process string) []*api.KVPair {
	if at := v.at(process); at >= 0 {
		return v.queue[:at]
	}
	return v.queue
}

// target returns what the process watches while it waits: the lock if the process is the next to
// take it, or if clients of api.Lock use it; else the entry before its own.
func (v *view) target(process string) target {
	ahead := v.ahead(process)
	if v.held() {
		ours := isID(string(v.pair.Value))
		if len(ahead) == 0 || !ours || !createdByHolder(v.pair) {
			return target{key: v.key, index: v.pair.ModifyIndex, isLock: true, heldByUs: ours}
		}
	}
	if len(ahead) > 0 {
		before := ahead[len(ahead)-1]
		return target{key: before.Key, index: before.ModifyIndex}
	}
	return target{}
}

// freeOps returns the operations that free the lock p. They delete the key if an acquisition of this
// package created it, and else only unlock it.
func freeOps(p *api.KVPair) ops {
	if createdByHolder(p) && isID(string(p.Value)) {
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
