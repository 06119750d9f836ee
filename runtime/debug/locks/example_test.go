package locks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/debug/locks"
)

// The page shows what is held while a method runs.
func Example() {
	monitor := locks.New(nil)
	locker := lock.New(memlock.New(), &lock.Options{Observer: monitor})
	defer locker.Close(context.Background())
	defer monitor.Watch(locker)()
	http.Handle("/debug/locks/", monitor)

	err := locker.Do(context.Background(), nil, "order:42", func(context.Context) error {
		page := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(page, httptest.NewRequest("GET", "/debug/locks/", nil))
		fmt.Println(page.Code, strings.Contains(page.Body.String(), "order:42"))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 200 true
	// <nil>
}
