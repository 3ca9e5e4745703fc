// Package budgets holds the upper bounds of small runs of scenarios, as data.
//
// Contract: one file per scenario. The bounded figures are counts that do not depend on the
// machine. A change that adds a write per row, a sweep over the fleet or an allocation per
// cluster exceeds them. The bounds leave some room, because concurrent writes merge by
// chance. A commit that raises a bound gives the reason.
package budgets

import (
	"embed"
	"fmt"
	"path"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var budgetFiles embed.FS

// Budget is the budget of one scenario.
type Budget struct {
	// Scenario is the name of the scenario.
	Scenario string `json:"scenario"`
	// Scale is the scale of the run.
	Scale float64 `json:"scale"`
	// Seed is the seed of its draws.
	Seed int64 `json:"seed"`
	// Most holds upper bounds of metrics, by name.
	Most map[string]float64 `json:"most"`
}

// ReadAll returns all budgets, in the order of their file names.
func ReadAll() ([]Budget, error) {
	entries, err := budgetFiles.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("budgets: %w", err)
	}
	var all []Budget
	for _, e := range entries {
		text, err := budgetFiles.ReadFile(path.Base(e.Name()))
		if err != nil {
			return nil, fmt.Errorf("budget %s: %w", e.Name(), err)
		}
		var b Budget
		if err := yaml.UnmarshalStrict(text, &b); err != nil {
			return nil, fmt.Errorf("budget %s: %w", e.Name(), err)
		}
		all = append(all, b)
	}
	return all, nil
}
