package redislock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	scanPage       = 250  // keys that one SCAN looks at, about
	fewFields      = 1000 // the most fields of a hash that are read, such as Redisson's readers
	redissonClient = "Redisson"
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
			yield(nil, b.withAdvice(nil, err))
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
		return []redis.UniversalClient{b.client}, checkAllSlots(ctx, b.client) // a node of a Cluster has a part of the locks
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
			return yield(nil, b.withAdvice(nil, err)) && false
		}
		infos, err := b.describe(ctx, c, names)
		if err != nil {
			return yield(nil, b.withAdvice(nil, err)) && false
		}
		for _, info := range infos {
			if info.lock != nil && !yield(info.lock, nil) {
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
	var err error
	clock := redis.UniversalClient(b.client) // in a Cluster, the node of the key: its tokens are by that clock
	if b.router.cluster() != nil {
		if clock, err = b.router.master(ctx, key); err != nil {
			return nil, b.withAdvice(nil, err)
		}
	}
	infos, err := b.describe(ctx, clock, []string{key})
	switch {
	case err != nil:
		return nil, b.withAdvice(nil, err)
	case infos[0].lock == nil && infos[0].kind != "none":
		return nil, fmt.Errorf("%w: %s is a %s", driver.ErrConflict, key, infos[0].kind)
	}
	return infos[0].lock, nil
}

// Break implements [driver.Inspector]. A mutex of Redisson is freed as one of this package;
// no other lock of Redisson is.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	info, err := b.Lock(ctx, key)
	if err != nil {
		return err
	}
	at := -1
	if info != nil {
		at = slices.IndexFunc(info.Holders, func(h driver.Holder) bool { return h.ID == id })
	}
	switch {
	case at < 0:
		return fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	case info.Kind != 0 && info.Holders[at].Client == redissonClient:
		return fmt.Errorf("%w: a read-write lock of Redisson can't be freed for another", driver.ErrInvalid)
	case info.Kind != 0:
		return b.kinds.Break(ctx, key, id)
	}
	k, err := keysOf(key)
	if err != nil {
		return err
	}
	c, unanswered, err := b.run(ctx, releaseArgs{}.call(k, id))
	if err == nil && c.reply.number() == 0 && !unanswered {
		err = fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	}
	return err
}

// keyInfo is what is at one key.
type keyInfo struct {
	kind string           // of the value; "none" is no value
	lock *driver.LockInfo // nil if it is no lock
}

// keyQuery is what is asked about one key.
type keyQuery struct {
	kind           *redis.StatusCmd
	left           *redis.DurationCmd
	fields         *redis.ScanCmd   // of a hash
	prefix, record *redis.StringCmd // of a string
	queue, waiting *redis.IntCmd
	token          *redis.StringCmd
}

func queryKey(ctx context.Context, pipe redis.Pipeliner, key string) *keyQuery {
	l := &keyQuery{
		kind:   pipe.Type(ctx, key),
		left:   pipe.PTTL(ctx, key),
		fields: pipe.HScan(ctx, key, 0, "", fewFields),
		prefix: pipe.GetRange(ctx, key, 0, 17),
	}
	if k, err := keysOf(key); err == nil {
		l.queue, l.token = pipe.ZCard(ctx, k.queue), pipe.Get(ctx, k.token)
		tag, _ := tagged(key)
		l.waiting = pipe.LLen(ctx, "redisson_lock_queue:"+tag)
	}
	return l
}

// describe looks at keys, in three round trips at most, by the time of clock. In a Cluster a key whose slot is on its way
// may be at another master than the one that named it.
func (b *Backend) describe(ctx context.Context, clock redis.UniversalClient, keys []string) ([]keyInfo, error) {
	now, err := clock.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	all, pipe := make([]*keyQuery, len(keys)), b.client.Pipeline()
	for i, key := range keys {
		all[i] = queryKey(ctx, pipe, key)
	}
	if err := sendAll(ctx, pipe); err != nil {
		return nil, err
	}
	out, values := make([]keyInfo, len(keys)), b.client.Pipeline()
	for i, l := range all {
		if err := l.refusal(); err != nil {
			return nil, err
		}
		switch out[i].kind = l.kind.Val(); {
		case out[i].kind == "string" && record.IsRecord(l.prefix.Val()):
			l.record = values.Get(ctx, keys[i])
		case out[i].kind == "hash" && l.fields.Err() == nil && l.left.Val() > 0:
			fields, _ := l.fields.Val()
			out[i].lock = hashLock(keys[i], fields, l.left.Val())
			l.complete(out[i].lock, now)
		}
	}
	if values.Len() == 0 {
		return out, nil
	}
	if err := sendAll(ctx, values); err != nil {
		return nil, err
	}
	for i, l := range all {
		if l.record == nil {
			continue
		}
		if err := refusal(l.record); err != nil {
			return nil, err
		}
		if l.record.Err() == nil { // else the record has gone since
			out[i].lock, _ = b.kinds.Describe(keys[i], l.record.Val(), record.Time(now.UnixMicro()))
		}
	}
	return out, nil
}

// sendAll sends what pipe has. It returns an error if the commands have none of their own.
func sendAll(ctx context.Context, pipe redis.Pipeliner) error {
	cmds, err := pipe.Exec(ctx)
	if isAnswer(err) && slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		return nil
	}
	return err // of the connection, or because the server refuses its user
}

// refusal returns an error if the server has refused to tell what is at the key.
func (l *keyQuery) refusal() error {
	switch l.kind.Val() {
	case "hash":
		return refusal(l.left, l.fields)
	case "string":
		return refusal(l.prefix)
	}
	return refusal(l.kind)
}

// refusal returns the first error of cmds that does not come from what is at the key.
func refusal(cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return err
		}
	}
	return nil
}

// complete adds to a mutex what other keys say of it. The token is the last one that the lease
// reserves, and the server remembers it for a while only.
func (l *keyQuery) complete(info *driver.LockInfo, now time.Time) {
	if info == nil || info.Kind != 0 || l.queue == nil {
		return
	}
	info.Waiters = int(l.queue.Val() + l.waiting.Val())
	if h := &info.Holders[0]; h.Client == record.Client {
		h.Token, _ = strconv.ParseUint(l.token.Val(), 10, 64) // 0: it is not remembered
		h.Since = record.ClockOf(h.Token, record.Time(now.UnixMicro()))
	}
}

// hashLock returns the lock in a hash that expires, or nil if it is no lock. fields has the
// hash's names and values in turn.
func hashLock(key string, fields []string, left time.Duration) *driver.LockInfo {
	info := &driver.LockInfo{Key: key}
	mode := ""
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := fields[i], fields[i+1]
		if name == "mode" && (value == "read" || value == "write") {
			mode = value
			continue
		}
		id := ownerPattern.FindStringSubmatch(name)
		if _, err := strconv.Atoi(value); id == nil || err != nil {
			return nil
		}
		h := driver.Holder{ID: name, Left: left, Client: redissonClient}
		if id[1] == "8" && id[2] == "" {
			h.Client = record.Client
		}
		if h.Kind = driver.Read; id[2] != "" {
			h.Kind = driver.Write
		}
		info.Holders = append(info.Holders, h)
	}
	switch {
	case len(info.Holders) == 0:
		return nil
	case mode != "":
		info.Kind, info.Waiters = driver.Read|driver.Write, -1
		return info
	case len(info.Holders) > 1:
		return nil
	}
	info.Holders[0].Kind = 0
	return info
}
