package consullock

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// noteKey is where the note of this name is.
func noteKey(name string) string {
	topic, text, _ := strings.Cut(name, "/")
	return ownPrefix + topic + "/" + escape(text)
}

// PutNote implements [driver.Noter] by a key that a session holds. All notes of b with one ttl
// share the session, and each renews it. Consul's sessions last for a day at most.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	key := noteKey(name)
	if ttl <= 0 {
		_, err := b.write(ctx, ops{kv(api.KVDelete, api.KVTxnOp{Key: key})})
		return err
	}
	return b.putWithTTL(ctx, key, text, ttl)
}

// putWithTTL writes text to key for ttl, on a session for what has this ttl.
func (b *Backend) putWithTTL(ctx context.Context, key, text string, ttl time.Duration) error {
	session, err := b.noteSession(ctx, ttl)
	if err != nil {
		return err
	}
	_, err = b.write(ctx, ops{ // another session may hold the key
		kv(api.KVDelete, api.KVTxnOp{Key: key}),
		kv(api.KVLock, api.KVTxnOp{Key: key, Value: []byte(text), Session: session}),
	})
	return err
}

// noteSession returns a session that lasts for ttl, or as near as the server allows.
func (b *Backend) noteSession(ctx context.Context, ttl time.Duration) (string, error) {
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	o := (&api.WriteOptions{}).WithContext(ctx)
	if session, ok := b.noteSessions.Load(ttl); ok {
		if entry, _, err := b.client.Session().Renew(session.(string), o); entry != nil {
			return session.(string), nil
		} else if err != nil {
			return "", explained(engine.OrClosed(ctx, err))
		}
	}
	least, err := b.leastTTL(ctx)
	if err != nil {
		return "", err
	}
	session, _, err := b.client.Session().CreateNoChecks(&api.SessionEntry{
		Name: "lockgen notes", TTL: min(max(ttl, least), maxSession).String(),
		Behavior: api.SessionBehaviorDelete, LockDelay: noLockDelay,
	}, o)
	if err != nil {
		return "", explained(engine.OrClosed(ctx, err))
	}
	b.noteSessions.Store(ttl, session)
	return session, nil
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	pair, err := b.get(ctx, noteKey(name))
	if err != nil || pair == nil {
		return "", err
	}
	return string(pair.Value), nil
}
