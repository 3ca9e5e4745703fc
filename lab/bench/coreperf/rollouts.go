package coreperf

import (
	"fmt"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// rolloutCases are steps of a rollout. Rows that wait for their turn must cost no memory: each report of the stage that
// changes makes such a step.
func rolloutCases() []Case {
	return []Case{{
		Name: "rollout-at-rest", What: "a step of a rollout in which no row changes", How: "10,000 rows, of which one changes and the others wait for its stage",
		Prepare: func() (func() error, error) {
			in := newRolloutInput(10_000)
			return func() error {
				if out := rollout.AdvanceRows(in); len(out.Changes) > 0 {
					return fmt.Errorf("%d rows change", len(out.Changes))
				}
				return nil
			}, nil
		},
	}}
}

// newRolloutInput returns a Bundle whose first row has the revision r2 and is not healthy yet. The others are at r1.
func newRolloutInput(n int) rollout.Input {
	fleet, now := makeFleet(n), time.Now()
	for i := range fleet {
		fleet[i].Taints = nil
	}
	specs := make(map[string]atoll.RowSpec, n)
	in := rollout.Input{
		BundleUID: "bundle", Revision: "b-2-r2", Rows: make(map[string]rollout.Row, n), Now: now,
		Terms: rollout.CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{fleet[0].Name}}}}}),
	}
	for i, c := range fleet {
		row := rollout.Row{Online: true, Stage: in.Terms.StageOf(c.Name, c.Labels, c.CreatedAt)}
		row.Spec = atoll.RowSpec{UID: c.UID, Generation: 1, Revision: "b-1-r1", Phase: atoll.RowActive, Since: 1}
		row.Status = &atoll.RowStatus{UID: c.UID, Generation: 1, State: atoll.RowReady, Applied: true, Total: 1, Ready: 1}
		if i == 0 {
			row.Spec.Generation, row.Spec.Revision, row.Spec.MovedAt = 2, in.Revision, now.Unix()
		}
		in.Rows[c.Name], specs[c.Name] = row, row.Spec
	}
	in.Decision = schedule.DecidePlacement(schedule.Input{BundleUID: "bundle", Clusters: fleet, Rows: specs, Now: now})
	return in
}
