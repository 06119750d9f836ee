package redislock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// G11: acquires that have no answer do not delay the renewal of a lease, whatever the kind of lock.
func TestRenewalsPassAcquires(t *testing.T) {
	t.Parallel()
	const slots = 2 // one more than were in use when a batch ended
	value, hung, open := "", make(chan struct{}, slots), make(chan struct{})
	var mu sync.Mutex
	addr := stub(t, func(args []string) string {
		switch {
		case args[0] != "evalsha" && args[0] != "eval":
			return unknownCommand
		case args[3] == "hung":
			select {
			case hung <- struct{}{}:
				<-open
			case <-open:
			}
			return ""
		case args[5] == "-":
			return fmt.Sprintf("*3\r\n:0\r\n:%d\r\n$%d\r\n%s\r\n", time.Now().UnixMicro(), len(value), value)
		}
		mu.Lock()
		defer mu.Unlock()
		now := time.Now().UnixMicro()
		value = record.Resolve(args[5], record.Time(now))
		return fmt.Sprintf("*3\r\n:1\r\n:%d\r\n$%d\r\n%s\r\n", now, len(value), value)
	})
	b := newTestBackend(t, addr, func(o *redis.Options) { o.ReadTimeout = time.Minute })
	a := &driver.Acquisition{Key: "key", ID: newID(), TTL: time.Minute, Tokens: 1, Mode: driver.Mode{Kind: driver.Fair}}
	l, err := b.Acquire(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	var acquires sync.WaitGroup
	defer acquires.Wait()
	defer close(open)
	for range slots {
		acquires.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			_, _ = b.Acquire(ctx, &driver.Acquisition{Key: "hung", ID: newID(), TTL: time.Minute, Tokens: 1, Mode: driver.Mode{Kind: driver.Fair}})
		})
		receive(t, "the acquire at the server", hung)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := l.Renew(ctx, time.Minute); err != nil {
		t.Error(err)
	}
}

// A call with Try is refused within a moment while another server takes over, whatever the kind
// of lock.
func TestTriesDoNotWaitForAFailover(t *testing.T) {
	t.Parallel()
	refuse := always("-LOADING Redis is loading the dataset in memory\r\n")
	b := newTestBackend(t, stub(t, scripted(refuse, refuse, refuse)))
	b.router.failsOver = true
	for _, kind := range []driver.Kind{0, driver.Fair} {
		ctx, cancel := context.WithTimeout(t.Context(), outageLimit/2)
		defer cancel()
		_, err := b.Acquire(ctx, &driver.Acquisition{Key: "key", ID: newID(), TTL: time.Minute, Tokens: 1, Mode: driver.Mode{Kind: kind}})
		if err == nil || ctx.Err() != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
}
