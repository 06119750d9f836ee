package collisions_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/collisions"
	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", collisions.Analyzer, "./...")
}
