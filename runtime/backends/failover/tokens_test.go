package failover_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// If an engine's clock is behind by more than a switch waits, its grants are refused.
func TestClockBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		p := w.processes[0]
		token := func() (uint64, error) {
			ctx, h, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key")
			defer h.Release(nil)
			token, _ := lock.Token(ctx)
			return token, err
		}
		first, err := token()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.backend.Switch(t.Context(), "standby"); err != nil {
			t.Fatal(err)
		}
		w.granting(p, "standby", resumes)
		w.standby.set(func() { w.standby.less = uint64(time.Hour.Microseconds()) * driver.TokensPerMicrosecond })
		if second, err := token(); !errors.Is(err, lock.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "has gone back") {
			t.Errorf("a token an hour behind token %d: %d, %v", first, second, err)
		}
		w.end()
	})
}

// After the record was written, the tokens of the primary have run ahead of all clocks. The tokens of the
// standby are still above them, and later tokens of the primary are above those.
func TestTokensAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, 1)
		p, last := w.processes[0], uint64(0)
		const hour = uint64(time.Hour/time.Microsecond) * driver.TokensPerMicrosecond
		w.primary.set(func() { w.primary.less -= hour })
		for _, to := range []string{"standby", "primary", "standby"} {
			ctx, h, err := p.Acquire(t.Context(), &lock.Policy{TTL: time.Second}, "key")
			if err != nil {
				t.Fatal(err)
			}
			token, _ := lock.Token(ctx)
			if token <= last {
				t.Errorf("token %d after token %d", token, last)
			}
			last = token
			h.Release(nil)
			if err := p.backend.Switch(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			w.granting(p, to, resumes)
		}
		w.end()
	})
}
