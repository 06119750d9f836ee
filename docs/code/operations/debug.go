// Package operations is the code of docs/operations.md and docs/debug-page.md.
package operations

import (
	"net/http"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/debug/locks"
)

// Debug serves the page of a Locker's locks until serve returns.
func Debug(backend lock.Backend, serve func(*lock.Locker) error) error {
	monitor := locks.New(&locks.Options{ProfileFraction: 100})
	locker := lock.New(backend, &lock.Options{Observer: monitor})
	defer monitor.Watch(locker)()
	http.Handle("/debug/locks/", monitor)
	return serve(locker)
}
