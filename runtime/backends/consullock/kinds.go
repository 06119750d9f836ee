package consullock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// recordFlag marks a key as the record of a lock that is no mutex.
const recordFlag = lockFlag ^ 0x4c4b47 // "LKG"

// methods call the waiters of a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind { return record.AllKinds }

// store is the Backend as the engine of its records, each of which is at the lock's key.
type store struct{ *Backend }

// Swap implements [record.Store].
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if err := checkKey(w.Key); err != nil {
		return a, err
	}
	mayHaveRun, err := resend(ctx, func(ctx context.Context) error { return b.swap(ctx, w, &a) })
	a.MayHaveRun = mayHaveRun && !w.Look
	return a, err
}

// swap is one attempt of Swap.
func (b *Backend) swap(ctx context.Context, w record.Write, a *record.Answer) error {
	if w.Look {
		return b.readRecord(ctx, w, a)
	}
	index, _ := w.Place.(uint64)
	t := ops{unchanged(w.Key, index), kv(api.KVSet, api.KVTxnOp{Key: w.Key, Value: []byte(w.Value), Flags: recordFlag})}
	if w.Value == "" {
		t[1] = kv(api.KVDelete, api.KVTxnOp{Key: w.Key})
	}
	r, err := b.write(ctx, t)
	switch {
	case errors.Is(err, errChanged):
		return b.readRecord(ctx, w, a)
	case err != nil:
		return err
	}
	*a = record.Answer{Done: true}
	if p := r.pair(w.Key); w.Value != "" && p != nil {
		a.Value, a.Place = record.ResolveRevision(w.Value, p.ModifyIndex), p.ModifyIndex
	}
	return nil
}

// readRecord sets in a what is at w's key.
func (b *Backend) readRecord(ctx context.Context, w record.Write, a *record.Answer) error {
	p, err := b.get(ctx, w.Key)
	switch {
	case err != nil:
		return err
	case p == nil:
		*a = record.Answer{}
		return nil
	case p.Flags != recordFlag:
		return record.InsteadOf(looksLike(p))
	}
	*a = record.Answer{Value: record.ResolveRevision(string(p.Value), p.ModifyIndex), Place: p.ModifyIndex}
	return nil
}

// looksLike names what a pair is, for an error.
func looksLike(p *api.KVPair) string {
	switch noun := record.Noun(string(p.Value)); {
	case p.Flags == lockFlag:
		return record.Mutex
	case p.Flags == recordFlag && noun != "":
		return noun
	case p.Flags == api.SemaphoreFlagValue:
		return "a contender of api.Semaphore"
	}
	return fmt.Sprintf("a pair with flags %#x, which is no lock,", p.Flags)
}

// watchRecord is the [record.Watch] of Consul.
func (b *Backend) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	if err := b.takeWatchSlot(key); err != nil {
		return err
	}
	defer b.freeWatchSlot()
	var at uint64
	var failed error
	queryUntilDone(ctx, 0, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
		pair, meta, err := b.query(key, o)
		if failed = err; err != nil {
			return nil, true, err
		}
		ready()
		if pair == nil || pair.Flags != recordFlag {
			tell("")
		} else if pair.ModifyIndex != at {
			at = pair.ModifyIndex
			tell(record.ResolveRevision(string(pair.Value), at))
		}
		return meta, false, nil
	})
	return cmp.Or(failed, ctx.Err())
}
