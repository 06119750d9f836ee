//go:build simruntime

package sim

import (
	"time"
	_ "unsafe" // for linkname
)

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = true

// SeedChance sets the source of chance of the caller's bubble: of the order in which
// goroutines run, and of math/rand.
func SeedChance(seed uint64) { simSeed(seed) }

// Stall lets d pass in which no goroutine of the caller's bubble runs and no timer
// fires: what falls due in between does so afterwards.
func Stall(d time.Duration) { simStall(int64(d)) }

//go:linkname simSeed runtime.simSeed
func simSeed(seed uint64)

//go:linkname simStall runtime.simStall
func simStall(ns int64)
