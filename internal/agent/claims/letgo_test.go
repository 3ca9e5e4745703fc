package claims

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// What is let go of is claimed by nobody any more. A note is left on what was made here and whose
// cluster leaves the fleet, not on what a policy orphans, nor on what was there before.
func TestWhatIsLetGoIsClaimedByNobody(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "n", Name: "x"}
	for _, tc := range []struct {
		name    string
		adopted bool
		leaves  bool // the cluster does
		noted   bool
	}{
		{"the cluster leaves", false, true, true},
		{"the policy orphans", false, false, false},
		{"it was there before", true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := NewBook()
			b.Fold(Holding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.Rendered{{Key: key, UID: "t", Hash: "h"}}}})
			b.Applied(key, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1", Adopted: tc.adopted})
			b.Fold(Holding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true, Removal: v1alpha1.RemoveOrphan, LeftBehind: tc.leaves}})
			s := b.Next(key)
			if s.Verb != Release || s.Record.LeavesBehind() != tc.noted {
				t.Fatalf("%s, with a note: %t", s.Verb, s.Record.LeavesBehind())
			}
			if b.Removed("b1") {
				t.Error("the removal is told before it is done")
			}
			b.Released(key)
			if r, _ := b.Record(key); len(r.Claims) > 0 || !b.Removed("b1") {
				t.Errorf("it is claimed still: %+v, removed %t", r, b.Removed("b1"))
			}
		})
	}
}
