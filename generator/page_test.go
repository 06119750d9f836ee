package generator

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The reference in docs/directive.md has a row for each item, in the order of itemSpecs, with the
// items that it excludes, also in that order.
func TestPageOfTheDirective(t *testing.T) {
	page, err := os.ReadFile("../docs/directive.md")
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") {
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			rows = append(rows, []string{strings.Trim(cells[0], "`"), strings.Trim(cells[len(cells)-1], "| ")})
		}
	}
	require.Len(t, rows, len(itemSpecs), "docs/directive.md has another number of items than itemSpecs")
	for i, spec := range itemSpecs {
		example := spec.example
		if example == "" {
			example = spec.name
		}
		require.Equal(t, example, rows[i][0])
		var excluded []string
		for _, other := range itemSpecs {
			if slices.ContainsFunc(exclusions, func(e struct{ a, b, hint string }) bool {
				return e.a == spec.name && e.b == other.name || e.b == spec.name && e.a == other.name
			}) {
				excluded = append(excluded, other.name)
			}
		}
		if len(excluded) > 0 {
			require.Equal(t, strings.Join(excluded, ", "), rows[i][1], "what %s excludes", spec.name)
		}
	}
}
