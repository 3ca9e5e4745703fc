package atoll

import "strings"

// Words that RowSpec.Reason begins with.
const (
	// RowUnfit: the cluster drifted from the placement that chose it; what runs
	// there is kept.
	RowUnfit = "Unfit"
	// RowNoClusterFits: nothing fits the placement, so what runs is kept.
	RowNoClusterFits = "NoClusterFits"
	// RowSpreadUnmet: the spread's minimum cannot be had, so nothing changes.
	RowSpreadUnmet = "SpreadUnmet"
	// RowNoCapacity: the cluster's stated capacity has no place for the newer revision, so
	// the row stays at the revision and the share that it has.
	RowNoCapacity = "NoCapacity"
	// RowPlacementEdited: the placement was edited so that the cluster is out.
	RowPlacementEdited = "PlacementEdited"
	// RowMoved: the placement lets what runs move to clusters that score better, and the
	// one that comes does.
	RowMoved = "MovedToBetter"
	// RowGroupLeft: an earlier group of clusterAffinities is used again.
	RowGroupLeft = "GroupLeft"
	// RowRebalanced: somebody had the Bundle placed from scratch, and others were chosen.
	RowRebalanced = "Rebalanced"
	// RowEvicted: a NoExecute taint is not tolerated, or not any more.
	RowEvicted = "Evicted"
	// RowClusterRemoved: the cluster is being removed from the fleet.
	RowClusterRemoved = "ClusterRemoved"
	// RowBundleDeleted: the Bundle, or the namespace of its templates, is deleted.
	RowBundleDeleted = "BundleDeleted"
	// RowRemovalHeld: a removal over the budget waits for `atoll confirm`; the
	// reason carries the plan. On an Active row it is the removal of items that
	// waits, and with it the row's step to the newer revision.
	RowRemovalHeld = "RemovalHeld"
	// RowRemovedBefore: members remember removals that the hub, which was restored
	// from an older state, does not: of items, on an Active row, or of the row. With a
	// plan it waits for a decision; without, the row's removal is confirmed.
	RowRemovedBefore = "RemovedBeforeRestore"
	// RowReplacementsNotReady: what replaces the row, or its share, did not become
	// healthy in time; the reason carries the plan that `atoll confirm` releases.
	RowReplacementsNotReady = "ReplacementsNotReady"
)

// RowReason is a RowSpec.Reason taken apart. It reads "Word", "Word plan=HASH",
// and either with ": text" behind.
type RowReason struct {
	Word string
	// Plan is the hash of the removal plan that waits for a confirmation.
	Plan string
	Text string
}

// String gives what ParseRowReason reads. Texts are cut at 160 bytes, since every
// row stores its own.
func (r RowReason) String() string {
	s := r.Word
	if r.Plan != "" {
		s += planMark + r.Plan
	}
	if r.Text != "" {
		s += ": " + cut(r.Text, 160)
	}
	return s
}

// ParseRowReason takes a reason apart.
func ParseRowReason(s string) RowReason {
	head, text, _ := strings.Cut(s, ": ")
	word, plan, _ := strings.Cut(head, planMark)
	return RowReason{Word: word, Plan: plan, Text: text}
}

const planMark = " plan="

// cut s to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const more = "…"
	end := n - len(more)
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end] + more
}
