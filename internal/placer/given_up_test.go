package placer

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// TestWhatIsGivenUpIsToldByItsNumber: the name of a Revision tells people nothing.
func TestWhatIsGivenUpIsToldByItsNumber(t *testing.T) {
	name := atoll.RevisionName("b6f9674d-80dd-4313-9f06-2afc3cce0b8f", 11, "acb6a85550b9b8b6")
	want := "cluster oslo is deleted: its content of revision 11 stays there"
	if got := givenUpText([]rollout.AbandonedRow{{Cluster: "oslo", Revision: name}}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
