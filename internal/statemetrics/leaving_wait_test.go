package statemetrics

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

// A row that is to go waits for the budget that keeps it, or else for its replacements.
func TestTheWaitOfALeavingRow(t *testing.T) {
	for stored, want := range map[string]atoll.Reason{
		"Evicted: taint t:NoExecute":                   atoll.ReasonWaitsForReplacements,
		"DisruptionBudget: Evicted: taint t:NoExecute": atoll.ReasonDisruptionBudget,
		"DisruptionBudgetTooStrict: Evicted":           atoll.ReasonDisruptionBudgetTooStrict,
		"PodDisruptionBudget: MovedToBetter":           atoll.ReasonPodDisruptionBudget,
	} {
		if got, since := waitOfRow(rowcodec.Summary{Phase: atoll.RowLeaving, Reason: stored, Since: 7}); got != string(want) || since != 7 {
			t.Errorf("%s: %s since %d, want %s", stored, got, since, want)
		}
	}
}
