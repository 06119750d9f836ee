package history

import "testing"

// TestALateMachineExcusesALostLease checks that a lease that is lost without a fault is a violation, unless a process
// or the server was late meanwhile or within a second before.
func TestALateMachineExcusesALostLease(t *testing.T) {
	late := func(proc int, from, to int64) func(*builder) {
		return func(t *builder) { t.put(proc, Record{Op: Late}, from, to) }
	}
	sampled := func(from, to int64) func(*builder) {
		return func(t *builder) {
			t.h.Samples = append(t.h.Samples, Sample{Begin: 1e12 + from*ms, End: 1e12 + to*ms})
		}
	}
	for _, c := range []struct {
		name, wrong string
		tell        func(*builder)
	}{
		{"nothing was late", "I5", func(*builder) {}},
		{"its process was late", "", late(1, 3100, 3200)},
		{"another process was late", "", late(2, 3100, 3200)},
		{"it was late just before", "", late(1, 2100, 2200)},
		{"it was late long before", "I5", late(1, 1500, 1900)},
		{"it was late afterwards", "I5", late(1, 3500, 3600)},
		{"the server was late", "", sampled(3100, 3151)},
		{"the server was not late", "I5", sampled(3100, 3150)},
		{"the server was late long before", "I5", sampled(1800, 1900)},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newBuilder()
			h.stay(1, 1, 2999, 3000, 3420, Record{Renews: true}, Lost)
			c.tell(h)
			expect(t, &h.h, c.wrong)
		})
	}
}
