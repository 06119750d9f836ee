// Package fencing is the code of docs/fencing.md.
package fencing

import (
	"context"
	"database/sql"
	"errors"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/fence"
)

//go:generate go tool lockgen

// Ledger books amounts to accounts.
type Ledger struct {
	DB   *sql.DB
	Gate *fence.Gate // fence.NewGate(fence.PostgreSQL, "fences"), and gate.Migrate once
}

// Book books an amount.
//
//lock:key="ledger:<account>" ttl=10s
func (l *Ledger) Book(ctx context.Context, account int64, cents int64) (err error) {
	tx, err := l.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback())) }()
	if err := l.Gate.Pass(ctx, tx, LedgerBookKey(account)); err != nil {
		return err // fence.ErrStale: a later holder has booked
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET cents = cents + $1 WHERE id = $2", cents, account); err != nil {
		return err
	}
	return tx.Commit()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Rename changes the name of an item, whose row has the token in a column of its own.
//
//lock:key="item:<id>" ttl=10s
func (l *Ledger) Rename(ctx context.Context, id int64, name string) error {
	token, err := fence.Token(ctx, LedgerRenameKey(id))
	if err != nil {
		return err
	}
	return fence.Changed(l.DB.ExecContext(ctx,
		"UPDATE item SET name = $1, token = $2 WHERE id = $3 AND token <= $2", name, token, id))
}

var setFenced = redis.NewScript(fence.RedisSet)

// Cache writes a value of Redis unless a later holder of the lock on key has written it.
func Cache(ctx context.Context, client *redis.Client, key, value string) error {
	token, err := fence.Token(ctx, key)
	if err != nil {
		return err
	}
	names := []string{"{" + key + "}", "{" + key + "}:token"} // in one slot of a Cluster
	return fence.RedisReply(setFenced.Run(ctx, client, names, token, value, 0).Slice())
}

// Ship asks another service to ship, which refuses a token that is too old.
func Ship(ctx context.Context, client *http.Client, url, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	if err := fence.SetHeader(ctx, r.Header, key); err != nil {
		return err
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return fence.ResponseError(resp)
}

// Shipping is the other service.
func Shipping(ship http.Handler) http.Handler {
	return fence.Handler(&fence.Memory{}, ship)
}
