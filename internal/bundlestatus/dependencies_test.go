package bundlestatus

import (
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// A Bundle that waits for another one has the reason of its rows, in its rollout and its wait, and one at rest has none.
func TestADependencyInARolloutStatus(t *testing.T) {
	const db = "PropagationPolicy db to be ready in the same cluster"
	ordered := func(reason atoll.Reason, text string) func(*Row) {
		return func(r *Row) { r.Spec.Reason = atoll.RowReason{Reason: reason, Text: text}.String() }
	}
	staged := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}}}}
	for name, c := range map[string]struct {
		stated      *v1alpha1.Rollout
		rows        []Row
		want, waits string
	}{
		"at rest": {nil, []Row{newRow("a", readyStatus())}, "none", ""},
		"all at once": {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll}, []Row{newRow("a", readyStatus()), newRow("b", readyStatus(), inStage(0, true), ordered(atoll.ReasonWaitsForDependency, db))},
			"WaitsForDependency: " + db + "; Atoll", "WaitsForDependency"},
		"a first copy": {nil, []Row{newRow("b", nil, withPhase(atoll.RowPending, "DependencyMissing: PropagationPolicy db, which places nothing, or an edit of dependsOn"))},
			"DependencyMissing: PropagationPolicy db, which places nothing, or an edit of dependsOn; the application's owner", "DependencyMissing"},
		"a circle": {staged, []Row{newRow("a", readyStatus(), inStage(0, true), ordered(atoll.ReasonDependencyCycle, "an edit of dependsOn")), newRow("b", readyStatus(), inStage(1, true))},
			"DependencyCycle: an edit of dependsOn; the application's owner", "DependencyCycle"},
		"another cluster of the stage": {nil, []Row{newRow("a", readyStatus(), inStage(0, true)), newRow("b", readyStatus(), inStage(0, true), ordered(atoll.ReasonWaitsForDependency, db))},
			"WaitsForStage: stage rest to become healthy; Atoll", "WaitsForStage"},
	} {
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(c.stated).ForClusters(len(c.rows)), Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Rollout, in.Bundle.Spec.DependsOn = c.stated, []v1alpha1.PolicyDependency{{Name: "db"}}
		got, st := "none", ComputeStatus(in)
		if r := st.Rollout; r != nil {
			got = r.Reason + ": " + r.Message + "; " + r.Actor
		}
		waits := ""
		if st.Wait != nil {
			waits = st.Wait.Reason
		}
		if got != c.want || waits != c.waits {
			t.Errorf("%s: %q, and the wait %q, want %q and %q", name, got, waits, c.want, c.waits)
		}
	}
}

// A Bundle that is removed waits for those that depend on it, also where nothing bounds its rollout.
func TestABundleThatLeavesAfterOthers(t *testing.T) {
	const text = "PropagationPolicy web to leave the cluster first"
	for name, row := range map[string]Row{
		"a revision without items": newRow("a", readyStatus(), inStage(0, true), func(r *Row) {
			r.Spec.Reason = atoll.RowReason{Reason: atoll.ReasonWaitsForDependents, Text: text}.String()
		}),
		"a deleted namespace": newRow("a", readyStatus(), withPhase(atoll.RowLeaving, "WaitsForDependents: "+text)),
	} {
		in := StatusInput{Rows: []Row{row}, Latest: latest, Now: time.Unix(1000, 0)}
		st := ComputeStatus(in)
		if shown := st.Rollout != nil && st.Rollout.Reason == string(atoll.ReasonWaitsForDependents); shown != (row.Spec.Phase == atoll.RowActive) {
			t.Errorf("%s: the rollout is %+v", name, st.Rollout)
		}
		if st.Wait == nil || st.Wait.Reason != string(atoll.ReasonWaitsForDependents) || st.WaitsFor != "a: "+text+"; no person has to act" {
			t.Errorf("%s: it waits for %q by %+v", name, st.WaitsFor, st.Wait)
		}
	}
}
