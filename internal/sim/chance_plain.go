//go:build !simruntime

package sim

import "time"

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = false

// SeedChance can set nothing here.
func SeedChance(uint64) {}

// Stall lets d pass. It can't keep other goroutines from running here.
func Stall(d time.Duration) { time.Sleep(d) }
