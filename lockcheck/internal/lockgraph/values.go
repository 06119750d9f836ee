package lockgraph

import (
	"strconv"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// valueOf returns the text that facts.Scope.Canonical returns for a placeholder.
func valueOf(root int, path string) string {
	switch root {
	case facts.Unknown:
		return "?"
	case facts.Receiver:
		return "r" + path
	}
	return "p" + strconv.Itoa(root) + path
}

func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return facts.Unknown
	}
	return n
}
