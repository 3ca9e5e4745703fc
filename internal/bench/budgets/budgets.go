// Package budgets holds what small runs of scenarios may cost at most, as data.
//
// Contract: a file per scenario. The figures are counts that do not depend on the
// machine: a change that adds a write per row, a sweep over the fleet or an
// allocation per cluster goes over them. They have some room, since what is written
// together depends on what comes together. Who raises one says why in the commit.
package budgets

import (
	"embed"
	"fmt"
	"path"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Budget of one scenario.
type Budget struct {
	// Scenario that is run.
	Scenario string `json:"scenario"`
	// Scale of the run.
	Scale float64 `json:"scale"`
	// Seed of its draws.
	Seed int64 `json:"seed"`
	// Most is what metrics may come to, by name.
	Most map[string]float64 `json:"most"`
}

// All budgets, by the names of their files.
func All() ([]Budget, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("budgets: %w", err)
	}
	var all []Budget
	for _, e := range entries {
		text, err := files.ReadFile(path.Base(e.Name()))
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
