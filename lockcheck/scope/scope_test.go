package scope_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
	"github.com/lockgen/lockgen/lockcheck/scope"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", scope.Analyzer, "./...")
}
