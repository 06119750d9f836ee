package readwrite_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck/readwrite"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), readwrite.Analyzer, "./...")
}
