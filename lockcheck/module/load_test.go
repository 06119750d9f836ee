package module

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// The main module has the runtime itself and what that imports; the package imports both the
// runtime and an engine.
func TestTypesAreOfOneLoad(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("LOCKGENCACHE", "off")
	res, err := Check(context.Background(), Options{Dir: "../..", Patterns: []string{"./example/javabeside"}})
	require.NoError(t, err)
	require.Empty(t, res.Broken)
}
