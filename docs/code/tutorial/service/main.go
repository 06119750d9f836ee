package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	listener, err := net.Listen("tcp", "localhost:8080")
	if err == nil {
		err = serve(ctx, client, listener)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
	}
}

// serve answers buyers until ctx ends.
func serve(ctx context.Context, client *redis.Client, listener net.Listener) (err error) {
	locker := lock.New(redislock.New(client), nil)
	server := &http.Server{Handler: handler(NewShopWithLock(&Shop{client}, locker)), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(stop)) // first the requests,
	return errors.Join(err, locker.Close(stop))   // then the locks that they hold
}

func handler(shop *ShopWithLock) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}/buy", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			http.Error(w, "no such item", http.StatusNotFound)
			return
		}
		_, err = shop.Buy(r.Context(), id)
		switch {
		case err == nil:
			w.WriteHeader(http.StatusCreated)
		case errors.Is(err, errSoldOut):
			http.Error(w, "sold out", http.StatusGone)
		case errors.Is(err, redis.Nil):
			http.Error(w, "no such item", http.StatusNotFound)
		case errors.Is(err, lock.ErrNotAcquired):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many buyers, try again", http.StatusTooManyRequests)
		case errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrIndeterminate):
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default: // lock.ErrLost among them: the piece may have been sold
			http.Error(w, "look at your orders before you try again", http.StatusInternalServerError)
		}
	})
	return mux
}
