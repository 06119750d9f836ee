package readwrite_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
	"github.com/lockgen/lockgen/lockcheck/readwrite"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", readwrite.Analyzer, "./...")
}
