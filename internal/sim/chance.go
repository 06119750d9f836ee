//go:build simruntime

package sim

import (
	"time"
	_ "unsafe" // for linkname
)

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = true

// SeedChance sets the seed of the caller's bubble, for the order in which goroutines run and
// for math/rand.
func SeedChance(seed uint64) { simSeed(seed) }

// Stall lets d pass while no goroutine of the caller's bubble runs. Timers that are due
// in that time fire afterwards.
func Stall(d time.Duration) { simStall(int64(d)) }

//go:linkname simSeed runtime.simSeed
func simSeed(seed uint64)

//go:linkname simStall runtime.simStall
func simStall(ns int64)
