package module

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// The main module contains the runtime itself and its imports; the package imports both the runtime
// and an engine.
func TestTypesAreOfOneLoad(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("LOCKGENCACHE", "off")
	res, err := Check(context.Background(), Options{Dir: "../..", Patterns: []string{"./example/javabeside"}})
	require.NoError(t, err)
	require.Empty(t, res.Broken)
}

// Packages that do not import each other are checked in parallel, and the stored results are the
// same.
func TestPackagesSideBySide(t *testing.T) {
	t.Setenv("GOWORK", "off")
	t.Setenv("LOCKGENCACHE", t.TempDir())
	opts := Options{Dir: "../order/testdata", Patterns: []string{"./..."}}
	res, err := Check(t.Context(), opts)
	require.NoError(t, err)
	require.Empty(t, res.Broken)
	require.Greater(t, res.Packages, 10)
	require.NotEmpty(t, res.Diagnostics)
	again, err := Check(t.Context(), opts)
	require.NoError(t, err)
	require.Equal(t, res.Diagnostics, again.Diagnostics)
}
