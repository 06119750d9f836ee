//go:build !simruntime

package sim

import "time"

// Repeatable says that the program was built with the runtime of package goruntime.
const Repeatable = false

func seedChance(uint64) {}

// stall can't keep other goroutines from running here.
func stall(ns int64) { time.Sleep(time.Duration(ns)) }
