package fence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"

	lock "github.com/lockgen/lockgen/runtime"
)

// HeaderKey and HeaderToken are the headers that carry a key and its token, in decimal.
const (
	HeaderKey   = "Lockgen-Key"
	HeaderToken = "Lockgen-Token"
)

// SetHeader writes key and the token of the lock on key that ctx owns into the headers of a request. Its errors
// are those of [Token]. If key has a control character, or begins or ends with a space, a header can't carry it,
// and the error wraps [lock.ErrInvalid].
func SetHeader(ctx context.Context, h http.Header, key string) error {
	token, err := Token(ctx, key)
	if err != nil {
		return err
	}
	if strings.Trim(key, " ") != key || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("fence: %w: the header %s can't carry the key %q", lock.ErrInvalid, HeaderKey, key)
	}
	h.Set(HeaderKey, key)
	h.Set(HeaderToken, strconv.FormatInt(token, 10))
	return nil
}

// A Store remembers the highest token of each key. Advance returns an error that wraps [ErrStale] if the
// Store has seen a higher token. Otherwise it stores token. Many goroutines may call it at once.
type Store interface {
	// Advance stores token, or refuses it.
	Advance(ctx context.Context, key string, token int64) error
}

// Handler returns a handler that calls next unless the request has no token, or a lower token than an earlier
// request. It answers 412 (Precondition Failed) if the token is too low, 428 (Precondition Required) if key or
// token is missing, 400 if the token is not a number, and 503 if the store fails.
//
// A request that was let in may still be at work when the request of a later holder comes. So a handler that
// writes to a database should also compare in its transaction ([Gate.Advance]). The headers are not signed: if
// callers are not trusted, use [lock.Inject] and [lock.Extract].
func Handler(store Store, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, text := r.Header.Get(HeaderKey), r.Header.Get(HeaderToken)
		if key == "" || text == "" {
			http.Error(w, "the headers "+HeaderKey+" and "+HeaderToken+" are required: the caller must hold the lock", http.StatusPreconditionRequired)
			return
		}
		token, err := strconv.ParseInt(text, 10, 64)
		if err != nil || token <= 0 {
			http.Error(w, fmt.Sprintf("%s %q is no number from 1 to %d", HeaderToken, text, int64(math.MaxInt64)), http.StatusBadRequest)
			return
		}
		switch err := store.Advance(r.Context(), key, token); {
		case errors.Is(err, ErrStale):
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
		case err != nil:
			http.Error(w, "the store of fencing tokens failed", http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ResponseError returns an error that wraps [ErrStale] and [lock.ErrLost] if a [Handler] refused the request because
// of its token, and nil otherwise. It reads no body.
func ResponseError(r *http.Response) error {
	if r.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	return fmt.Errorf("%w: %w: the service answered %s", ErrStale, lock.ErrLost, r.Status)
}

// Memory is a [Store] in the memory of one process. Its tokens are lost when the process ends, and it keeps an
// entry for each key. So it is for services of one process and a bounded set of keys. Its zero value is ready.
type Memory struct {
	mu     sync.Mutex
	newest map[string]int64
}

// Advance implements [Store]. It does not block.
func (m *Memory) Advance(_ context.Context, key string, token int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if newest := m.newest[key]; token < newest {
		return stale(key, token, newest)
	}
	if m.newest == nil {
		m.newest = map[string]int64{}
	}
	m.newest[key] = token
	return nil
}
