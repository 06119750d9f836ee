package redislock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	scanPage = 250 // keys that one SCAN looks at, about
	foreign  = "Redisson"
)

// ownerPattern is what Redisson and this package write as the owner of a lock: a UUID, a colon
// and a number. Redisson has ":write" behind it for a writer.
var ownerPattern = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}:[0-9]+(:write)?$`)

// Locks implements [driver.Inspector] by SCAN, at each master in turn.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		if b.unusable != nil {
			yield(nil, b.unusable)
			return
		}
		masters, err := b.masters(ctx)
		if err != nil {
			yield(nil, b.advised(nil, err))
			return
		}
		for _, m := range masters {
			for _, kind := range []string{"hash", "string"} {
				if !b.scan(ctx, m, pattern, kind, yield) {
					return
				}
			}
		}
	}
}

// masters returns the client of the server, or those of a Cluster's masters.
func (b *Backend) masters(ctx context.Context) (all []redis.UniversalClient, err error) {
	cluster := b.router.cluster()
	if cluster == nil {
		return []redis.UniversalClient{b.own}, hasSlots(ctx, b.own) // a node of a Cluster has a part of the locks
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, c)
		return nil
	})
	return all, err
}

// scan yields the locks of one server that are values of this type. It reports whether
// to go on.
func (b *Backend) scan(ctx context.Context, c redis.UniversalClient, pattern, kind string, yield func(*driver.LockInfo, error) bool) bool {
	// In SCAN's patterns brackets and backslashes have a meaning too.
	pattern = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`).Replace(pattern)
	for cursor := uint64(0); ; {
		names, next, err := c.ScanType(ctx, cursor, pattern, scanPage, kind).Result()
		if err != nil {
			return yield(nil, b.advised(nil, err)) && false
		}
		all, err := b.lookAtAll(ctx, names)
		if err != nil {
			return yield(nil, err) && false
		}
		for i, s := range all {
			if info := s.lock(names[i]); info != nil && !yield(info, nil) {
				return false
			}
		}
		if cursor = next; cursor == 0 {
			return true
		}
	}
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (*driver.LockInfo, error) {
	if b.unusable != nil {
		return nil, b.unusable
	}
	s, err := b.look(ctx, lookAt(key))
	if err != nil {
		return nil, err
	}
	info := s.lock(key)
	if info == nil && s.kind != "none" {
		return nil, fmt.Errorf("%w: %s is a %s", driver.ErrConflict, key, s.kind)
	}
	return info, nil
}

// lookAtAll looks at keys at once. Of the servers that hold them each tells its own time.
func (b *Backend) lookAtAll(ctx context.Context, keys []string) ([]*seen, error) {
	all, errs, began := make([]*seen, len(keys)), make([]error, len(keys)), make([]*call, len(keys))
	for i, key := range keys {
		began[i] = lookAt(key)
	}
	b.each(ctx, began, func(i int) { all[i], errs[i] = b.look(ctx, began[i]) })
	return all, cmp.Or(errs...)
}

// Break implements [driver.Inspector]. A mutex of Redisson is freed as one of this package;
// no other lock of Redisson is.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	info, err := b.Lock(ctx, key)
	if err != nil {
		return err
	}
	var h *driver.Holder
	for i := 0; info != nil && i < len(info.Holders); i++ {
		if info.Holders[i].ID == id {
			h = &info.Holders[i]
		}
	}
	switch {
	case h == nil:
		return fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	case info.Kind != 0 && h.Client == foreign:
		return fmt.Errorf("%w: a read-write lock of Redisson can't be freed for another", driver.ErrInvalid)
	case info.Kind != 0:
		return b.kinds.Break(ctx, key, id)
	}
	k, err := keysOf(key)
	if err != nil {
		return err
	}
	c, unanswered, err := b.runApart(ctx, freeing{}.call(k, id))
	if err == nil && c.reply.number() == 0 && !unanswered {
		err = fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	}
	return err
}
