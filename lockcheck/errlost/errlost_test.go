package errlost_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/errlost"
	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", errlost.Analyzer, "./...")
}
