//go:build simruntime

package sim

import _ "unsafe" // for linkname

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = true

//go:linkname seedChance runtime.simSeed
func seedChance(seed uint64)

//go:linkname stall runtime.simStall
func stall(ns int64)
