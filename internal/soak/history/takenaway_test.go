package history

import (
	"strings"
	"testing"
)

// TestGrantOfALeaseThatWasTakenAway checks that an engine that takes a lease away is one violation. If it grants the key before
// the holder learns of that, this is a second violation; if it grants the key later, it is not.
func TestGrantOfALeaseThatWasTakenAway(t *testing.T) {
	for granted, want := range map[int64]int{395: 1, 405: 0} {
		h := newBuilder()
		h.put(1, Record{Op: Grant, Lease: "p1:1", Token: 100, Tokens: 1, TTL: 1000 * ms, Valid: 1e12 + 1001*ms}, 1, 2)
		h.put(1, Record{Op: Renew, Lease: "p1:1", Outcome: Lost}, 390, 400)
		h.put(2, Record{Op: Grant, Lease: "p2:1", Token: 200, Tokens: 1, TTL: 1000 * ms, Valid: 1e12 + 1390*ms}, 390, granted)
		taken, double := 0, 0
		for _, v := range Verify(&h.h) {
			switch {
			case v.Invariant == "I2" && strings.HasPrefix(v.Text, "the engine took the lease away"):
				taken++
			case v.Invariant == "I2":
				double++
			}
		}
		if taken != 1 || double != want {
			t.Errorf("granted at %d: a lease was taken away %d times, and granted early %d times; want 1 and %d", granted, taken, double, want)
		}
	}
}
