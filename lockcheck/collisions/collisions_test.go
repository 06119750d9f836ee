package collisions_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck/collisions"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), collisions.Analyzer, "./...")
}
