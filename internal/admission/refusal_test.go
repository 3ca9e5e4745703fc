package admission

import (
	"testing"

	"atoll.dev/atoll/internal/refusal"
)

// wantReason holds that a refusal has a reason of the table, as clients get it.
func wantReason(t *testing.T, err error) {
	t.Helper()
	if err != nil && refusal.ReasonOf(err, "") == "" {
		t.Errorf("the refusal has no reason among its causes: %v", err)
	}
}
