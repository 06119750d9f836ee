package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// shrink finds the smallest part of a plan that still fails in the same way, and prints the
// command that repeats it.
func shrink(t *testing.T, o Options, bad *Result) {
	c := o.Choice
	c.Faults = make([]int, len(bad.Plan.Faults))
	for i := range c.Faults {
		c.Faults[i] = i
	}
	invariant := bad.Violations[0].Invariant
	fails := func(c Choice) bool {
		r := Play(t, NewPlan(bad.Plan.Seed, c))
		return slices.ContainsFunc(r.Violations, func(v history.Violation) bool { return v.Invariant == invariant })
	}
	if !fails(c) {
		fmt.Fprintf(o.Out, "  again: %s\n  it can't be made smaller\n", again(bad.Plan.Seed, o.Choice))
		return
	}
	for i := 0; i < len(c.Faults); {
		less := c
		less.Faults = slices.Delete(slices.Clone(c.Faults), i, i+1)
		if fails(less) {
			c = less
		} else {
			i++
		}
	}
	for _, field := range []struct {
		of   func(*Choice) *int
		most int
	}{
		{func(c *Choice) *int { return &c.Processes }, len(bad.Plan.Processes)},
		{func(c *Choice) *int { return &c.Keys }, len(bad.Plan.Keys)},
		{func(c *Choice) *int { return &c.Workers }, bad.Plan.Workers},
	} {
		for n := 1; n < field.most; n++ {
			less := c
			*field.of(&less) = n
			if fails(less) {
				c = less
				break
			}
		}
	}
	fmt.Fprintf(o.Out, "  again: %s\n  smallest: %s\n", again(bad.Plan.Seed, o.Choice), again(bad.Plan.Seed, c))
}

// again returns the command that repeats an episode.
func again(seed uint64, c Choice) string {
	var flags []string
	add := func(format string, args ...any) { flags = append(flags, fmt.Sprintf(format, args...)) }
	if c.Engine != "" {
		add("-engine %s", c.Engine)
	}
	if c.LockKind != "" {
		add("-lock %s", c.LockKind)
	}
	if c.Sticky {
		add("-sticky")
	}
	if len(c.Kinds) > 0 {
		add("-kinds %s", strings.Join(c.Kinds, ","))
	}
	if c.Faults != nil {
		add("-faults %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Faults), " ", ","), "[]")+",")
	}
	if c.Processes > 0 {
		add("-processes %d", c.Processes)
	}
	if c.Keys > 0 {
		add("-keys %d", c.Keys)
	}
	if c.Workers > 0 {
		add("-workers %d", c.Workers)
	}
	if len(flags) == 0 {
		return fmt.Sprintf("make sim SEED=%d", seed)
	}
	return fmt.Sprintf("make sim SEED=%d SIMFLAGS='%s'", seed, strings.Join(flags, " "))
}
