package lostctx_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
	"github.com/lockgen/lockgen/lockcheck/lostctx"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", lostctx.Analyzer, "./...")
}
