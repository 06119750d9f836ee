package lostctx_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck/lostctx"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), lostctx.Analyzer, "./...")
}
