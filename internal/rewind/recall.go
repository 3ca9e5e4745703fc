package rewind

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Values of Rewound.Accepted.
const (
	AcceptedHub     = "hub"
	AcceptedMembers = "members"
)

// RememberFor is how long members remember removals, and so how long after a rewind
// one that comes back is asked for them.
const RememberFor = 30 * 24 * time.Hour

// Recalling tells whether members are asked what they remember before anything is
// ordered of them: their word was accepted, and not so long ago that all have
// forgotten.
func Recalling(st *enginev1.HubState, now time.Time) bool {
	return st != nil && st.Rewound != nil && st.Rewound.Accepted == AcceptedMembers &&
		now.Before(st.Rewound.Since.Add(RememberFor))
}

// Memory is what one member remembers of removals.
type Memory struct {
	// Deleted templates, by their users; by key and UID.
	Deleted []Deleted
	// Rows that were removed as a whole, by Bundle UID, the last time each.
	Rows map[string]Removed
}

// Deleted is a template that a user deleted.
type Deleted struct {
	Key atoll.ItemKey
	UID string
	// At is when the member removed it, in Unix seconds by its own clock.
	At int64
}

// Removed is a row that a member removed.
type Removed struct {
	Generation int64
	// At is when, in Unix seconds by the member's own clock.
	At int64
}

// MemoryOf what a member told. Removals of items that no user deleted say nothing
// about a template: it moved to another Bundle, or was not needed any more. What
// cannot be read is left out and counted.
func MemoryOf(told []*pb.RememberedTombstone) (m Memory, unread int) {
	m.Rows = map[string]Removed{}
	deleted := map[string]Deleted{}
	for _, r := range told {
		if len(r.GetTombstone()) == 0 {
			if old := m.Rows[r.GetBundle()]; r.GetGeneration() >= old.Generation {
				m.Rows[r.GetBundle()] = Removed{r.GetGeneration(), r.GetAt()}
			}
			continue
		}
		var t atoll.Tombstone
		if err := json.Unmarshal(r.GetTombstone(), &t); err != nil || t.UID == "" {
			unread++
			continue
		}
		if t.Cause == atoll.CauseDeleted {
			deleted[t.ID()] = Deleted{t.Key, t.UID, r.GetAt()}
		}
	}
	m.Deleted = slices.SortedFunc(maps.Values(deleted), func(a, b Deleted) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.UID, b.UID))
	})
	return m, unread
}

// Forgotten tells whether the store has forgotten that the member removed the row:
// the row is from before the rewind, and the removal is younger than what the row
// says. since is when the hub found out that it was set back.
func Forgotten(row atoll.RowSpec, r Removed, since time.Time) bool {
	switch {
	case row.Phase == atoll.RowRemoving || row.Recall != nil:
		return false
	case row.Since >= since.Unix():
		return false // it came, or came back, by what users said after the restore
	}
	return r.Generation > row.Generation || r.At > row.Since
}

// HoldRow gives the spec of a row whose removal was forgotten: it is not ordered
// again under that placement before somebody decides.
func HoldRow(row atoll.RowSpec, r Removed, placement string, floor int64, now time.Time) atoll.RowSpec {
	row.Generation = max(row.Generation, r.Generation, floor) + 1
	row.Phase, row.Since, row.Reason = atoll.RowRemoving, now.Unix(), ""
	row.Orphan, row.Grown, row.Moving, row.Home, row.Due = false, 0, 0, nil, nil
	row.Recall = &atoll.Recall{At: r.At, Placement: placement}
	return row
}

// Covered tells whether all that the row's content has is held back item by item
// already, so that its removal was but a consequence and is not asked about twice.
// held lists the templates that members remember as deleted, by UID.
func Covered(content *atoll.Content, held map[string]bool) bool {
	chosen := 0
	for i := range content.Items {
		item := &content.Items[i]
		if item.Dependency {
			continue
		}
		if chosen++; item.Recalled == "" && !held[item.UID] {
			return false
		}
	}
	return chosen > 0
}

// Note is what a template's annotation says of its deletion.
func Note(d Deleted, cluster string) string {
	return fmt.Sprintf("%s %s, says %s", atoll.RecalledDeleted, time.Unix(d.At, 0).UTC().Format(time.RFC3339), cluster)
}
