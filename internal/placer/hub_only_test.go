package placer

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// An item that a user deletes, or takes back to the hub, is a removal that counts for the limit of direct
// deletes. An item that moves, or that nothing needs, is none, and neither is what stays as an orphan.
func TestWhatCountsAsARemoval(t *testing.T) {
	for cause, want := range map[atoll.TombstoneCause]bool{
		atoll.CauseDeleted: true, atoll.CauseHubOnly: true, atoll.CauseMoved: false, atoll.CauseUnused: false,
	} {
		if isRemoval(atoll.Tombstone{Cause: cause}) != want || isRemoval(atoll.Tombstone{Cause: cause, Orphan: true}) {
			t.Errorf("%s is a removal: %t", cause, !want)
		}
	}
}
