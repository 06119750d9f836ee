// Package recipes is the code of docs/recipes.md.
package recipes

import (
	"context"
	"errors"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

// Accounts is a service that calls itself.
type Accounts struct {
	self AccountsMethods // the wrapper: a call of s.Withdraw would run without the lock
}

// AccountsMethods is what Accounts calls of itself.
type AccountsMethods interface {
	Withdraw(ctx context.Context, id int64, cents int64) error
}

// NewAccounts returns the service, wired to its wrapper.
func NewAccounts(locker *lock.Locker) *AccountsWithLock {
	inner := &Accounts{}
	wrapper := NewAccountsWithLock(inner, locker)
	inner.self = wrapper
	return wrapper
}

// Withdraw takes money from an account.
//
//lock:key="account:<id>" ttl=10s reentrant
func (s *Accounts) Withdraw(ctx context.Context, id int64, cents int64) error {
	return lock.Check(ctx)
}

// Close empties an account. Withdraw enters the same lock again.
//
//lock:key="account:<id>" ttl=10s reentrant
func (s *Accounts) Close(ctx context.Context, id int64, rest int64) error {
	return s.self.Withdraw(ctx, id, rest)
}

// Transfer moves money. Both accounts are locked, in an order that is the same everywhere.
//
//lock:key="account:<from>" ttl=10s
//lock:key="account:<to>" ttl=10s
func (s *Accounts) Transfer(ctx context.Context, from, to int64, cents int64) error {
	if from == to {
		return errors.New("from and to are the same account")
	}
	return lock.Check(ctx)
}

// Reports has jobs.
type Reports struct{}

// Nightly runs once for each day, in whatever process comes first.
//
//lock:key="reports:nightly" ttl=1m once="<day>" skip
func (r *Reports) Nightly(ctx context.Context, day time.Time) error {
	return ctx.Err()
}

// Drain runs in one process for as long as that leads.
//
//lock:key="reports:drain" ttl=15s leader
func (r *Reports) Drain(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done(): // not the leader any more, with cause lock.ErrLost, or to resign
			return context.Cause(ctx)
		case <-time.After(time.Second):
			// one step of work, whose writes carry lock.Token(ctx)
		}
	}
}

// Outbox sends what is in a table of the database, one message after the other.
type Outbox struct{}

// Send sends the next messages of a topic. Where another process sends already, nothing is done.
//
//lock:key="outbox:<topic>" ttl=30s skip try
func (o *Outbox) Send(ctx context.Context, topic string) error {
	return lock.Check(ctx)
}

// Main is the order of a shutdown: no new work, then the work that is under way, then the locks, then the client.
func Main(serve func(context.Context) error, locker *lock.Locker, closeClient func() error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx); err != nil { // returns when its requests have ended
		slog.Error("serve", "error", err)
	}
	bound, cancel := context.WithTimeout(context.Background(), 10*time.Second) // below terminationGracePeriodSeconds
	defer cancel()
	if err := locker.Close(bound); err != nil {
		slog.Warn("locks were still held", "error", err)
	}
	if err := closeClient(); err != nil {
		slog.Warn("close the client", "error", err)
	}
}
