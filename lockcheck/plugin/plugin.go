// Package plugin makes the checks of lockcheck a module plugin of golangci-lint. It is a module of
// its own, so that golangci-lint's register is in no other module graph.
package plugin

import (
	"fmt"
	"slices"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/lockgen/lockgen/lockcheck"
)

func init() { register.Plugin("lockcheck", New) }

// Settings are the settings in .golangci.yml below linters.settings.custom.lockcheck.
type Settings struct {
	Checks []string `json:"checks"` // by name; none means all
}

type plugin struct{ analyzers []*analysis.Analyzer }

// New returns the plugin. It refuses unknown settings, and names that are not checks.
func New(settings any) (register.LinterPlugin, error) {
	s, err := register.DecodeSettings[Settings](settings)
	if err != nil {
		return nil, fmt.Errorf("lockcheck: %w", err)
	}
	p := &plugin{}
	known := map[string]bool{}
	for _, a := range lockcheck.Analyzers() {
		known[a.Name] = true
		if len(s.Checks) == 0 || slices.Contains(s.Checks, a.Name) {
			p.analyzers = append(p.analyzers, alone(a))
		}
	}
	for _, name := range s.Checks {
		if !known[name] {
			return nil, fmt.Errorf("lockcheck: no check is called %s", name)
		}
	}
	return p, nil
}

// alone returns the check without the other places of its findings. golangci-lint would report each
// of them as an issue of its own, which would remain if nolint silences the finding. The messages
// name the places.
func alone(check *analysis.Analyzer) *analysis.Analyzer {
	out := *check
	out.Run = func(pass *analysis.Pass) (any, error) {
		p := *pass
		p.Report = func(d analysis.Diagnostic) {
			d.Related = nil
			pass.Report(d)
		}
		return check.Run(&p)
	}
	return &out
}

// BuildAnalyzers implements register.LinterPlugin.
func (p *plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) { return p.analyzers, nil }

// GetLoadMode implements register.LinterPlugin: the checks need types.
func (p *plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
