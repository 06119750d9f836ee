package consullock

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// hangs lets the requests of marked calls wait until their contexts end.
type hangs struct {
	http.RoundTripper
	asked chan struct{} // gets a value for each of these requests
}

type marked struct{}

func (h hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(marked{}) == nil {
		return h.RoundTripper.RoundTrip(r)
	}
	h.asked <- struct{}{}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Close ends the calls that are under way. Later calls send nothing.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	b := newBackend(t, testserver.Consul(t), func(c *api.Config) { c.HttpClient = &http.Client{Transport: hangs{c.Transport, asked}} })
	lease, other := take(t, b, attempt(newKey(t))), attempt(newKey(t))
	other.Mode.Kind = driver.Fair
	fair := take(t, b, other)
	ctx := context.WithValue(within(t, soon), marked{}, true)
	calls := map[string]func() error{
		"acquire":      func() error { _, err := b.Acquire(ctx, attempt(newKey(t))); return err },
		"release":      func() error { return lease.Release(ctx, 0) },
		"release fair": func() error { return fair.Release(ctx, 0) },
		"put a note":   func() error { return b.PutNote(ctx, "wait/x", "y", short) },
		"note":         func() error { _, err := b.Note(ctx, "wait/x"); return err },
		"ping":         func() error { return b.Ping(ctx) },
		"lock":         func() error { _, err := b.Lock(ctx, "x"); return err },
		"locks": func() (failed error) {
			for _, err := range b.Locks(ctx, "x*") {
				failed = err
			}
			return failed
		},
	}
	type end struct {
		of  string
		err error
	}
	ends := make(chan end, len(calls))
	for of, call := range calls {
		go func() { ends <- end{of, call()} }()
	}
	for range calls {
		receive(t, asked)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range calls {
		if e := receive(t, ends); !errors.Is(e.err, driver.ErrClosed) || errors.Is(e.err, context.Canceled) {
			t.Errorf("%s: %v", e.of, e.err)
		}
	}
	for _, of := range []string{"acquire", "put a note", "note", "ping", "lock", "locks"} {
		if err := calls[of](); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: %v", of, err)
		}
	}
}
