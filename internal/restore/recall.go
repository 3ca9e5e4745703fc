package restore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// Values of Rewound.Accepted.
const (
	AcceptedHub     = "hub"
	AcceptedMembers = "members"
)

// TombstoneRetention is how long members store removals, and so how long after a rewind the hub
// requests them from one that comes back.
const TombstoneRetention = 30 * 24 * time.Hour

// IsRecalling reports whether members must report their recorded removals before anything is
// ordered of them: an administrator accepted these, and none has expired in all members.
func IsRecalling(st *enginev1.HubState, now time.Time) bool {
	return st != nil && st.Rewound != nil && st.Rewound.Accepted == AcceptedMembers &&
		now.Before(st.Rewound.Since.Add(TombstoneRetention))
}

// MemberMemory is the recorded removals of one member.
type MemberMemory struct {
	// Deleted templates, by their users; by key and UID.
	Deleted []DeletedTemplate
	// Rows that were removed as a whole, by Bundle UID, the last time each.
	Rows map[string]RemovedRow
}

// DeletedTemplate is a template that a user deleted.
type DeletedTemplate struct {
	Key atoll.ItemKey
	UID string
	// RemovedAt is when the member removed it, in Unix seconds by its own clock.
	RemovedAt int64
}

// RemovedRow is a row that a member removed.
type RemovedRow struct {
	Generation int64
	// RemovedAt is when, in Unix seconds by the member's own clock.
	RemovedAt int64
}

// ParseMemory parses a member's report. Removals of items that no user deleted mean nothing for a
// template: it moved to another Bundle, or was not needed any more. An unreadable part is left out
// and counted.
func ParseMemory(told []*pb.RememberedTombstone) (m MemberMemory, unread int) {
	m.Rows = map[string]RemovedRow{}
	deleted := map[string]DeletedTemplate{}
	for _, r := range told {
		if len(r.GetTombstone()) == 0 {
			if old := m.Rows[r.GetBundle()]; r.GetGeneration() >= old.Generation {
				m.Rows[r.GetBundle()] = RemovedRow{r.GetGeneration(), r.GetAt()}
			}
			continue
		}
		var t atoll.Tombstone
		if err := json.Unmarshal(r.GetTombstone(), &t); err != nil || t.UID == "" {
			unread++
			continue
		}
		if t.Cause == atoll.CauseDeleted {
			deleted[t.ID()] = DeletedTemplate{t.Key, t.UID, r.GetAt()}
		}
	}
	m.Deleted = slices.SortedFunc(maps.Values(deleted), func(a, b DeletedTemplate) int {
		return cmp.Or(a.Key.Compare(b.Key), cmp.Compare(a.UID, b.UID))
	})
	return m, unread
}

// IsRemovalForgotten reports whether the store has lost that the member removed the row:
// the row is from before the rewind, and the removal is younger than the row's content. since is
// when the hub found out that it was set back.
func IsRemovalForgotten(row atoll.RowSpec, r RemovedRow, since time.Time) bool {
	switch {
	case row.Phase == atoll.RowRemoving || row.Recall != nil:
		return false
	case row.Since >= since.Unix():
		return false // it came, or came back, by changes of users after the restore
	}
	return r.Generation > row.Generation || r.RemovedAt > row.Since
}

// HoldForgottenRemoval returns the spec of a row whose removal was forgotten: it is not ordered again under
// that placement before a decision.
func HoldForgottenRemoval(row atoll.RowSpec, r RemovedRow, placement string, floor int64, now time.Time) atoll.RowSpec {
	row.Generation = max(row.Generation, r.Generation, floor) + 1
	row.Phase, row.Since, row.Reason = atoll.RowRemoving, now.Unix(), ""
	row.Orphan, row.GrownAt, row.MovingSince, row.HomeItems, row.ShrinkTo = false, 0, 0, nil, nil
	row.Recall = &atoll.RememberedRemoval{RemovedAt: r.RemovedAt, Placement: placement}
	return row
}

// AllItemsHeldBack reports whether all that the row's content has is held back item by item
// already, so that its removal was but a consequence and needs no second decision.
// held lists the templates that members recorded as deleted, by UID.
func AllItemsHeldBack(content *atoll.Content, held map[string]bool) bool {
	chosen := 0
	for i := range content.Items {
		item := &content.Items[i]
		if item.Dependency {
			continue
		}
		if chosen++; item.RecallNote == "" && !held[item.UID] {
			return false
		}
	}
	return chosen > 0
}

// DeletionNote is the content of a template's annotation about its deletion.
func DeletionNote(d DeletedTemplate, cluster string) string {
	return fmt.Sprintf("%s %s, says %s", atoll.RecalledDeleted, phrase.FormatTime(time.Unix(d.RemovedAt, 0)), cluster)
}
