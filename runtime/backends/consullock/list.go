package consullock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// listPage is how many keys one transaction of Locks reads: Consul takes 128 at most.
	listPage = 64
	// foreign is the Client of a lock that this package has not taken.
	foreign = "Consul"
)

// Locks implements [driver.Inspector]. Consul has no pages: one answer has the names of all keys
// that begin as the pattern does. Their values are read page by page.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return engine.List(func(yield func(*driver.LockInfo) bool) error {
		if b.invalid != nil {
			return b.invalid
		}
		begins := engine.Literal(pattern)
		if checkKey(strings.ToValidUTF8(begins, "x")+"x") != nil {
			return nil // no lock's key does
		}
		prefix, _ := watchedPath(begins) // a part of it, if /v1/kv refuses the whole
		keys, err := b.keys(ctx, prefix)
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return strings.HasPrefix(key, ownPrefix) || !engine.Match(pattern, key)
		})
		for page := range slices.Chunk(keys, listPage) {
			t := ops{}
			for _, key := range page {
				t = append(t, kv(api.KVGetOrEmpty, api.KVTxnOp{Key: key}))
			}
			r, _, err := b.read(ctx, t)
			if err != nil {
				return err
			}
			for _, p := range r {
				if !isLock(p) {
					continue
				}
				info, err := b.Lock(ctx, p.Key)
				if errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid) { // no lock any more, or none of ours
					continue
				}
				if err != nil || info != nil && !yield(info) {
					return err
				}
			}
		}
		return nil
	})
}

// keys returns the names of all keys that begin with prefix.
func (b *Backend) keys(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	keys, _, err := b.client.KV().Keys(prefix, "", (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return nil, explained(engine.OrClosed(ctx, err))
	}
	return keys, nil
}

func isLock(p *api.KVPair) bool {
	return p.Flags == lockFlag && p.Session != "" || p.Flags == recordFlag || p.Flags == api.SemaphoreFlagValue
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (*driver.LockInfo, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	v, err := b.readLock(ctx, key)
	if err != nil || v.pair == nil {
		return nil, err
	}
	switch v.pair.Flags {
	case recordFlag:
		return b.kinds.Describe(key, record.ResolveRevision(string(v.pair.Value), v.pair.ModifyIndex), 0)
	case api.SemaphoreFlagValue:
		return b.semaphore(ctx, v.pair)
	case lockFlag:
		info := &driver.LockInfo{Key: key, Waiters: len(v.queue)}
		if v.pair.Session != "" {
			info.Holders = []driver.Holder{b.holderOf(ctx, v.pair)}
		}
		return info, nil
	}
	return nil, fmt.Errorf("%w: the pair at %s has other flags than a lock", driver.ErrConflict, key)
}

// holderOf returns who holds the mutex p. The ID of another client's is its session.
func (b *Backend) holderOf(ctx context.Context, p *api.KVPair) driver.Holder {
	if id := string(p.Value); isID(id) {
		return driver.Holder{ID: id, Client: record.Client, Token: p.ModifyIndex << engine.TokenBits}
	}
	return b.sessionHolder(ctx, p.Session)
}

// ownerOf returns the ID of the holder of the mutex p.
func ownerOf(p *api.KVPair) string {
	if id := string(p.Value); isID(id) {
		return id
	}
	return p.Session
}

func (b *Backend) sessionHolder(ctx context.Context, id string) driver.Holder {
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	h := driver.Holder{ID: id, Client: foreign}
	s, _, err := b.client.Session().Info(id, (&api.QueryOptions{}).WithContext(ctx))
	if err == nil && s != nil {
		h.Name = strings.TrimSpace(s.Name + " on " + s.Node)
	}
	return h
}

// semaphore describes a lock of api.Semaphore.
func (b *Backend) semaphore(ctx context.Context, p *api.KVPair) (*driver.LockInfo, error) {
	var state struct{ Holders map[string]bool }
	if json.Unmarshal(p.Value, &state) != nil {
		return nil, nil // one of its contenders
	}
	info := &driver.LockInfo{Key: p.Key, Kind: driver.Permits, Waiters: -1}
	for id := range state.Holders {
		h := b.sessionHolder(ctx, id)
		h.Kind = driver.Permits
		info.Holders = append(info.Holders, h)
	}
	return info, nil
}

// Break implements [driver.Inspector].
func (b *Backend) Break(ctx context.Context, key, id string) error {
	lost := fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	v, err := b.readLock(ctx, key)
	switch {
	case err != nil:
		return err
	case v.pair == nil:
		return lost
	case v.pair.Flags == recordFlag:
		return b.kinds.Break(ctx, key, id)
	case v.pair.Flags == api.SemaphoreFlagValue:
		return fmt.Errorf("%w: a permit of api.Semaphore can't be freed for another; destroy its session", driver.ErrInvalid)
	case v.pair.Flags != lockFlag:
		return fmt.Errorf("%w: the pair at %s has other flags than a lock", driver.ErrConflict, key)
	case v.pair.Session == "" || ownerOf(v.pair) != id:
		return lost
	}
	_, err = b.write(ctx, freeOps(v.pair))
	if errors.Is(err, errChanged) {
		return lost
	}
	return err
}
