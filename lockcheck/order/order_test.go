package order_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck/order"
)

func Test(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), order.Analyzer, "./...")
}
