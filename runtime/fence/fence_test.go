package fence_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/fence"
)

// locked calls f under a lock on key.
func locked(t *testing.T, key string, f func(ctx context.Context)) {
	t.Helper()
	locker := lock.New(memlock.New(), nil)
	defer func() { require.NoError(t, locker.Close(context.Background())) }()
	require.NoError(t, locker.Do(context.Background(), nil, key, func(ctx context.Context) error {
		f(ctx)
		return nil
	}))
}

func TestToken(t *testing.T) {
	var kept context.Context
	locked(t, "item:1", func(ctx context.Context) {
		kept = ctx
		want, ok := lock.TokenOf(ctx, "item:1")
		require.True(t, ok)
		got, err := fence.Token(ctx, "item:1")
		require.NoError(t, err)
		require.Equal(t, want, uint64(got))
		_, err = fence.Token(ctx, "item:2")
		require.ErrorIs(t, err, lock.ErrNotHeld)
	})
	_, err := fence.Token(kept, "item:1")
	require.Error(t, err, "a token after the release")
	_, err = fence.Token(context.Background(), "item:1")
	require.ErrorIs(t, err, lock.ErrNotHeld)
}

func TestChanged(t *testing.T) {
	broken := errors.New("broken")
	require.NoError(t, fence.Changed(driver.RowsAffected(1), nil))
	require.ErrorIs(t, fence.Changed(driver.RowsAffected(0), nil), fence.ErrStale)
	require.ErrorIs(t, fence.Changed(nil, broken), broken)
	err := fence.Changed(driver.ResultNoRows, nil) // which counts nothing
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
}

func TestMemory(t *testing.T) {
	var m fence.Memory
	ctx := context.Background()
	require.NoError(t, m.Advance(ctx, "a", 5))
	require.NoError(t, m.Advance(ctx, "a", 5), "a holder writes more than once")
	require.NoError(t, m.Advance(ctx, "b", 1), "each key has its own")
	require.ErrorIs(t, m.Advance(ctx, "a", 4), fence.ErrStale)
	require.NoError(t, m.Advance(ctx, "a", 6))
}

func TestHandler(t *testing.T) {
	served := 0
	var store fence.Memory
	server := httptest.NewServer(fence.Handler(&store, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })))
	defer server.Close()
	send := func(change func(http.Header)) *http.Response {
		r, err := http.NewRequest(http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		change(r.Header)
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp
	}

	var token int64
	locked(t, "item:1", func(ctx context.Context) {
		resp := send(func(h http.Header) { require.NoError(t, fence.SetHeader(ctx, h, "item:1")) })
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, fence.ResponseError(resp))
		var err error
		token, err = fence.Token(ctx, "item:1")
		require.NoError(t, err)
		require.ErrorIs(t, fence.SetHeader(ctx, http.Header{}, "item:2"), lock.ErrNotHeld)
	})
	require.Equal(t, 1, served)

	for _, test := range []struct {
		key, token string
		want       int
	}{
		{"item:1", strconv.FormatInt(token-1, 10), http.StatusPreconditionFailed},
		{"item:1", "", http.StatusPreconditionRequired},
		{"", "7", http.StatusPreconditionRequired},
		{"item:1", "0", http.StatusBadRequest},
		{"item:1", "-7", http.StatusBadRequest},
		{"item:1", "9223372036854775808", http.StatusBadRequest},
		{"item:1", "7x", http.StatusBadRequest},
	} {
		resp := send(func(h http.Header) {
			h.Set(fence.HeaderKey, test.key)
			h.Set(fence.HeaderToken, test.token)
		})
		require.Equal(t, test.want, resp.StatusCode, "%q %q", test.key, test.token)
		if test.want == http.StatusPreconditionFailed {
			require.ErrorIs(t, fence.ResponseError(resp), fence.ErrStale)
			require.ErrorIs(t, fence.ResponseError(resp), lock.ErrLost)
		}
	}
	require.Equal(t, 1, served, "a refused request was served")
}

// A key arrives as it is, or is not sent: " item:1" that arrived as "item:1" would fence another lock.
func TestHeaderOfAnyKey(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get(fence.HeaderKey) }))
	defer server.Close()
	for key, carried := range map[string]bool{"item:1": true, "item 1": true, "订单:1": true, "\xff": true, " item:1": false, "item:1 ": false, "a\nb": false, "a\tb": false, "\x7f": false} {
		locked(t, key, func(ctx context.Context) {
			r, err := http.NewRequest(http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			err = fence.SetHeader(ctx, r.Header, key)
			if !carried {
				require.ErrorIs(t, err, lock.ErrInvalid, "%q", key)
				return
			}
			require.NoError(t, err, "%q", key)
			resp, err := server.Client().Do(r)
			require.NoError(t, err, "%q", key)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, key, got)
		})
	}
}

type failing struct{}

func (failing) Advance(context.Context, string, int64) error { return errors.New("the disk is full") }

func TestHandlerWhoseStoreFails(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set(fence.HeaderKey, "a")
	r.Header.Set(fence.HeaderToken, "1")
	fence.Handler(failing{}, http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.NotContains(t, w.Body.String(), "disk", "what failed is no business of the caller's")
}

func TestRedisSet(t *testing.T) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: testserver.Redis(t)})
	defer client.Close()
	name := "{" + t.Name() + "}"
	script := redis.NewScript(fence.RedisSet)
	set := func(token, value string, ms int) error {
		return fence.RedisReply(script.Run(ctx, client, []string{name, name + ":token"}, token, value, ms).Slice())
	}
	value := func() string {
		v, err := client.Get(ctx, name).Result()
		require.NoError(t, err)
		return v
	}
	defer client.Del(ctx, name, name+":token")

	require.NoError(t, set("9", "first", 0))
	require.NoError(t, set("9", "again", 0))
	require.NoError(t, set("10", "more digits", 0))
	require.ErrorIs(t, set("9", "late", 0), fence.ErrStale)
	require.Equal(t, "more digits", value())
	// These differ in their last bit, which a number of Lua does not have.
	require.NoError(t, set("9223372036854775807", "highest", 0))
	require.ErrorIs(t, set("9223372036854775806", "late", 0), fence.ErrStale)
	require.Equal(t, "highest", value())

	require.NoError(t, client.Del(ctx, name, name+":token").Err())
	require.NoError(t, set("5", "brief", 60_000))
	left, err := client.PTTL(ctx, name).Result()
	require.NoError(t, err)
	kept, err := client.PTTL(ctx, name+":token").Result()
	require.NoError(t, err)
	require.Positive(t, left)
	require.Greater(t, kept, left, "the token goes before the value")

	require.Error(t, fence.RedisReply([]any{"what"}, nil))
	require.ErrorIs(t, fence.RedisReply(nil, redis.Nil), redis.Nil)
}

func TestNewGate(t *testing.T) {
	for _, table := range []string{"", "a b", "a;", "a..b", ".a", `a"`} {
		_, err := fence.NewGate(fence.SQLite, table)
		require.Error(t, err, "table %q", table)
	}
	_, err := fence.NewGate(0, "fences")
	require.ErrorContains(t, err, "fence.PostgreSQL")
	_, err = fence.NewGate(fence.PostgreSQL, "shop.fences_2")
	require.NoError(t, err)
}
