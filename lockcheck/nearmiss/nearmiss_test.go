package nearmiss_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
	"github.com/lockgen/lockgen/lockcheck/nearmiss"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", nearmiss.Analyzer, "./...")
}
