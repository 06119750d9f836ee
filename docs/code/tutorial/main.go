package tutorial

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

// Serve runs the shop until ctx ends.
func Serve(ctx context.Context, db *sql.DB, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	locker := lock.New(redislock.New(client), nil)
	shop := NewShopWithLock(&Shop{DB: db}, locker)

	server := &http.Server{Addr: addr, Handler: handler(shop)}
	go func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = server.Shutdown(stop) // first the requests,
		_ = locker.Close(stop)    // then the locks that they hold
	}()
	return server.ListenAndServe()
}

func handler(shop *ShopWithLock) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := shop.Buy(r.Context(), 42)
		switch {
		case err == nil:
			w.WriteHeader(http.StatusCreated)
		case errors.Is(err, ErrSoldOut):
			http.Error(w, "sold out", http.StatusGone)
		case errors.Is(err, lock.ErrNotAcquired):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many buyers, try again", http.StatusTooManyRequests)
		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrIndeterminate):
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default: // lock.ErrLost among them: the order may have been stored
			http.Error(w, "look at your orders before you try again", http.StatusInternalServerError)
		}
	})
}
