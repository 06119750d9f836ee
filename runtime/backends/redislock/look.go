package redislock

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

//go:embed look.lua
var lookSource string

var lookScript = newScript(0, lookSource)

// seen is what look.lua tells of a key.
type seen struct {
	kind    string        // of the value; "none" is no value
	left    time.Duration // below 0: it has no expiry
	now     record.Time
	waiters int
	token   uint64   // 0: it is not remembered
	text    string   // a record, or what another string begins with
	fields  []string // of a hash, their names
}

// lookAt returns the call that looks at key and at what stands beside a lock of this name.
func lookAt(key string) *call {
	c := lookScript.on(key)
	if k, err := keysOf(key); err == nil {
		tag, _ := tagged(key)
		c = lookScript.on(key, k.queue, k.token).with("redisson_lock_queue:" + tag)
	}
	c.splits, c.asks = true, true
	return c
}

// look returns what c, which is of look.lua, is answered.
func (b *Backend) look(ctx context.Context, c *call) (*seen, error) {
	c, _, err := b.runApart(ctx, c)
	if err != nil {
		return nil, err
	}
	numbers, texts := c.reply.list()
	if len(numbers) != 3 || len(texts) < 2 || texts[0] == "string" && len(texts) < 3 {
		return nil, c.reply.senseless()
	}
	s := &seen{
		kind: texts[0], left: time.Duration(numbers[0]) * time.Millisecond,
		now: record.Time(numbers[1]), waiters: int(numbers[2]),
	}
	s.token, _ = strconv.ParseUint(texts[1], 10, 64)
	if s.fields = texts[2:]; s.kind == "string" {
		s.text, s.fields = s.fields[0], nil
	}
	return s, nil
}

// lock returns the lock that s is at key, or nil if it is none.
func (s *seen) lock(key string) *driver.LockInfo {
	switch {
	case record.IsRecord(s.text):
		info, _ := record.Describe(key, s.text, s.now)
		return info
	case s.left <= 0:
		return nil
	}
	info := s.hashLock(key)
	if info != nil && info.Kind == 0 {
		info.Waiters = s.waiters
		// The token is remembered for a while only, as the last of those that the lease reserves.
		if h := &info.Holders[0]; h.Client == record.Client {
			h.Token, h.Since = s.token, record.ClockOf(s.token, s.now)
		}
	}
	return info
}

// hashLock returns the lock that a hash is if it expires, or nil if it is none.
func (s *seen) hashLock(key string) *driver.LockInfo {
	info := &driver.LockInfo{Key: key}
	for _, name := range s.fields {
		if name == "mode" {
			continue
		}
		id := ownerPattern.FindStringSubmatch(name)
		if id == nil {
			return nil
		}
		h := driver.Holder{ID: name, Left: s.left, Client: foreign}
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
	case slices.Contains(s.fields, "mode"):
		info.Kind, info.Waiters = driver.Read|driver.Write, -1
		return info
	case len(info.Holders) > 1:
		return nil
	}
	info.Holders[0].Kind = 0
	return info
}
