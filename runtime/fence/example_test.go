package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/fence"
)

// A service refuses the request of a caller that was paused for longer than its lease, once
// it has served the next holder of the lock.
func ExampleHandler() {
	service := fence.Handler(&fence.Memory{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "stored")
	}))
	send := func(h http.Header) error {
		r := httptest.NewRequest(http.MethodPost, "/item/42", nil)
		r.Header = h
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		return fence.ResponseError(w.Result())
	}

	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())
	late := http.Header{}
	_ = locker.Do(context.Background(), nil, "item:42", func(ctx context.Context) error {
		return fence.SetHeader(ctx, late, "item:42") // and then the process is paused
	})
	err := locker.Do(context.Background(), nil, "item:42", func(ctx context.Context) error {
		h := http.Header{}
		if err := fence.SetHeader(ctx, h, "item:42"); err != nil {
			return err
		}
		return send(h)
	})
	fmt.Println("the next holder:", err)
	fmt.Println("the late one is stale:", errors.Is(send(late), fence.ErrStale))
	// Output:
	// the next holder: <nil>
	// the late one is stale: true
}

// In a database the comparison belongs into the transaction that writes. The schema is
// made once.
func ExampleNewGate() {
	gate, err := fence.NewGate(fence.PostgreSQL, "fences")
	if err != nil {
		panic(err)
	}
	fmt.Println(gate.Schema())
	// Then, in the method that holds the lock:
	//
	//	tx, err := db.BeginTx(ctx, nil)
	//	…
	//	if err := gate.Pass(ctx, tx, "item:42"); err != nil {
	//		return err // fence.ErrStale: a later holder has written
	//	}

	// Output:
	// CREATE TABLE IF NOT EXISTS fences (name text PRIMARY KEY, token bigint NOT NULL)
}
