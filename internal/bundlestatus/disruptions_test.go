package bundlestatus

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// A wait for a disruption budget has its reason in the rollout and in the wait of the Bundle, with the counts and the actor. A
// Bundle at rest has none.
func TestADisruptionBudgetInAStatus(t *testing.T) {
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady}
	leaving := func(reason atoll.Reason) func(*Row) {
		return withPhase(atoll.RowLeaving, atoll.RowReason{Reason: reason, Text: "Evicted: taint t:NoExecute is not tolerated"}.String())
	}
	for name, c := range map[string]struct {
		least       int32
		rows        []Row
		want, waits string
	}{
		"at rest": {2, []Row{newRow("a", readyStatus()), newRow("b", readyStatus()), newRow("c", readyStatus())}, "none", ""},
		"a change": {2, []Row{newRow("a", behind), newRow("b", readyStatus(), inStage(0, true)), newRow("c", readyStatus(), inStage(0, true))},
			"DisruptionBudget: a to become available: 2 of 3 copies are, and disruptionBudget states minAvailable 2; the application's owner", "WaitsForApply: a: the latest change to be applied (and 2 clusters more); the agent acts"},
		"a budget that lets no copy go": {2, []Row{newRow("a", readyStatus(), inStage(0, true)), newRow("b", readyStatus(), inStage(0, true))},
			"DisruptionBudgetTooStrict: an edit of disruptionBudget: minAvailable 2 lets no copy go, even while all are available; the application's owner",
			"DisruptionBudgetTooStrict: a: an edit of disruptionBudget: minAvailable 2 lets no copy go, even while all are available (and 1 cluster more); the application's owner must act"},
		"a leaving copy": {2, []Row{newRow("a", readyStatus(), leaving(atoll.ReasonDisruptionBudget)), newRow("b", readyStatus()), newRow("c", readyStatus(), makeUnreachable)},
			"none", "DisruptionBudget: a: more copies to become available: 2 of 2 copies are, and disruptionBudget states minAvailable 2; the application's owner must act"},
		"a leaving copy that never goes": {2, []Row{newRow("a", readyStatus(), leaving(atoll.ReasonDisruptionBudgetTooStrict)), newRow("b", readyStatus())},
			"none", "DisruptionBudgetTooStrict: a: an edit of disruptionBudget: minAvailable 2 lets no copy go, even while all are available; the application's owner must act"},
		"pods": {1, []Row{newRow("a", readyStatus(), leaving(atoll.ReasonPodDisruptionBudget)), newRow("b", readyStatus())},
			"none", "PodDisruptionBudget: a: a PodDisruptionBudget of the Bundle in the cluster to allow a disruption; the application's owner must act"},
		"the old copy goes first": {1, []Row{newRow("a", readyStatus(), leaving(atoll.ReasonDisruptionBudgetTooStrict)), newRow("b", nil, withPhase(atoll.RowPending, "DisruptionBudgetTooStrict: the old copy in a to end"))},
			"none", "DisruptionBudgetTooStrict: a: an edit of disruptionBudget: minAvailable 1 lets no copy go, even while all are available (and 1 cluster more); the application's owner must act"},
	} {
		budget := &v1alpha1.DisruptionBudget{MinAvailable: &intstr.IntOrString{IntVal: c.least}}
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(nil).ForClusters(len(c.rows)).WithBudget(budget), Now: time.Unix(1000, 0)}
		in.Bundle.Spec.DisruptionBudget = budget
		got, waits, st := "none", "", ComputeStatus(in)
		if r := st.Rollout; r != nil {
			got = r.Reason + ": " + r.Message + "; " + r.Actor
		}
		if st.Wait != nil {
			waits = st.Wait.Reason + ": " + st.WaitsFor
		}
		if got != c.want || waits != c.waits {
			t.Errorf("%s: %q, and the wait\n%q, want %q and\n%q", name, got, waits, c.want, c.waits)
		}
	}
}
