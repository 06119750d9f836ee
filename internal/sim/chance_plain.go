//go:build !simruntime

package sim

import "time"

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = false

// SeedChance does nothing without the changed runtime.
func SeedChance(uint64) {}

// Stall lets d pass. Without the changed runtime other goroutines may run meanwhile.
func Stall(d time.Duration) { time.Sleep(d) }
