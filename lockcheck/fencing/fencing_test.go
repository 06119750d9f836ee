package fencing_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/fencing"
	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", fencing.Analyzer, "./...")
}
