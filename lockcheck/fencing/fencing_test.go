package fencing_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck/fencing"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), fencing.Analyzer, "./...")
}
