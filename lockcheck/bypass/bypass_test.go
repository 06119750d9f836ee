package bypass_test

import (
	"testing"

	"github.com/lockgen/lockgen/lockcheck/bypass"
	"github.com/lockgen/lockgen/lockcheck/internal/checktest"
)

func Test(t *testing.T) {
	checktest.Run(t, "testdata", bypass.Analyzer, "./...")
}
