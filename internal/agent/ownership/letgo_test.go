package ownership

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// A released object is claimed by no Bundle. A note stays on an object that was made here and
// whose cluster leaves the fleet, not on a policy's orphan, nor on an object that existed before.
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
			b := NewOwnershipRecords()
			b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 1, Items: []atoll.RenderedItem{{Key: key, UID: "t", Hash: "h"}}}})
			b.RecordApplied(key, Fact{UID: "u", Template: "t", Hash: "h", Label: "b1", Adopted: tc.adopted})
			b.FoldHolding(BundleHolding{Manifest: atoll.Manifest{Bundle: "b1", Generation: 2, Remove: true, Removal: v1alpha1.RemoveOrphan, ClusterDecommissioned: tc.leaves}})
			s := b.Next(key)
			if s.Verb != Release || s.Record.LeavesBehind() != tc.noted {
				t.Fatalf("%s, with a note: %t", s.Verb, s.Record.LeavesBehind())
			}
			if b.IsBundleRemovalDone("b1") {
				t.Error("the removal is reported before it is done")
			}
			b.RecordReleased(key)
			if r, _ := b.Record(key); len(r.Claims) > 0 || !b.IsBundleRemovalDone("b1") {
				t.Errorf("it is claimed still: %+v, removed %t", r, b.IsBundleRemovalDone("b1"))
			}
		})
	}
}
