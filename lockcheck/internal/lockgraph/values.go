package lockgraph

import (
	"strconv"

	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// valueOf returns what facts.Scope.Canonical says of a placeholder.
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
