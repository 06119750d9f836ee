package plugin

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/lockgen/lockgen/lockcheck"
)

func TestPluginIsRegistered(t *testing.T) {
	build, err := register.GetPlugin("lockcheck")
	require.NoError(t, err)
	p, err := build(nil)
	require.NoError(t, err)
	require.Equal(t, register.LoadModeTypesInfo, p.GetLoadMode())
	analyzers, err := p.BuildAnalyzers()
	require.NoError(t, err)
	require.Len(t, analyzers, len(lockcheck.Analyzers()))

	p, err = build(map[string]any{"checks": []string{"order"}})
	require.NoError(t, err)
	analyzers, err = p.BuildAnalyzers()
	require.NoError(t, err)
	require.Len(t, analyzers, 1)
	require.Equal(t, "order", analyzers[0].Name)

	_, err = build(map[string]any{"checks": []string{"odrer"}})
	require.ErrorContains(t, err, "no check is called odrer")
	_, err = build(map[string]any{"chekcs": 1})
	require.Error(t, err)
}

// A finding is one issue, however many other places it has.
func TestFindingsHaveOnePlace(t *testing.T) {
	build, err := register.GetPlugin("lockcheck")
	require.NoError(t, err)
	p, err := build(map[string]any{"checks": []string{"order"}})
	require.NoError(t, err)
	analyzers, err := p.BuildAnalyzers()
	require.NoError(t, err)
	found := 0
	for _, r := range analysistest.Run(t, "../order/testdata", analyzers[0], "./pair") {
		for _, d := range r.Diagnostics {
			found++
			require.Empty(t, d.Related, d.Message)
		}
	}
	require.NotZero(t, found)
}
