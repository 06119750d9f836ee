package main

import (
	"fmt"
	"math"
	"strconv"
)

// whole formats 1234567.8 as 1,234,568.
func whole(v float64) string {
	if v < 0 {
		return "-" + whole(-v)
	}
	digits := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// decimal formats small values with two digits after the point.
func decimal(v float64) string {
	if v >= 100 {
		return whole(v)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// duration formats nanoseconds with three digits in a suitable unit.
func duration(ns float64) string {
	units := []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}}
	for _, u := range units {
		if math.Abs(ns) >= u.ns {
			return fmt.Sprintf("%s %s", threeDigits(ns/u.ns), u.name)
		}
	}
	return fmt.Sprintf("%s ns", threeDigits(ns))
}

func threeDigits(v float64) string {
	decimals := 2
	switch abs := math.Abs(v); {
	case abs >= 100:
		decimals = 0
	case abs >= 10:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
