package order_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
	"github.com/lockgen/lockgen/lockcheck/order"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", order.Analyzer, "./...")
}
