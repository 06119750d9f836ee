package failover_test

import (
	"context"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/driver"
)

// asking is an engine that records the IDs of the acquisitions that it gets.
type asking struct {
	*link
	ids []string
}

func (e *asking) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	e.ids = append(e.ids, a.ID)
	return e.link.Acquire(ctx, a)
}

// The lock that is taken as a probe has an ID in the form that driver.Acquisition requires, because an engine may
// parse it.
func TestIDOfAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		e := &asking{link: &link{server: w.primary}}
		b := failover.New(e, []driver.Backend{&link{server: w.standby}}, quick)
		defer b.Close()
		if err := b.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:\d+$`)
		if len(e.ids) == 0 || !id.MatchString(e.ids[0]) {
			t.Errorf("the IDs are %q; the first must be a UUID of version 8 and a number", e.ids)
		}
	})
}
