package consullock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// processKey is where a process has what [driver.Process] says of it, in JSON.
func processKey(id string) string { return ours + "process/" + id }

// Register implements [driver.Registrar] by a key that a session of its own holds, which
// is renewed by one request and takes the key along when it ends.
func (b *Backend) Register(ctx context.Context, p *driver.Process, ttl time.Duration) error {
	o := (&api.WriteOptions{}).WithContext(ctx)
	if session, ok := b.registered.Load(p.ID); ok {
		if ttl <= 0 {
			_, err := b.client.Session().Destroy(session.(string), o)
			return err
		}
		if entry, _, err := b.client.Session().Renew(session.(string), o); err != nil || entry != nil {
			return err
		}
	}
	if ttl <= 0 || b.invalid != nil {
		return b.invalid
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	session, _, err := b.client.Session().CreateNoChecks(&api.SessionEntry{
		Name: "lockgen process", TTL: ttl.String(), Behavior: api.SessionBehaviorDelete, LockDelay: time.Nanosecond,
	}, o)
	if err != nil {
		return err
	}
	b.registered.Store(p.ID, session)
	_, _, err = b.client.KV().Acquire(&api.KVPair{Key: processKey(p.ID), Value: text, Session: session}, o)
	return err
}

// Process implements [driver.Registrar].
func (b *Backend) Process(ctx context.Context, id string) (*driver.Process, error) {
	if b.invalid != nil {
		return nil, b.invalid
	}
	pair, _, err := b.client.KV().Get(processKey(id), (&api.QueryOptions{}).WithContext(ctx))
	if err != nil || pair == nil {
		return nil, err
	}
	p := &driver.Process{}
	if err := json.Unmarshal(pair.Value, p); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", driver.ErrConflict, processKey(id), err)
	}
	return p, nil
}
