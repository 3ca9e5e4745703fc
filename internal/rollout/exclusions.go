package rollout

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// ExcludedItem is an item that override rules keep out of a cluster.
type ExcludedItem struct {
	// Key of the item.
	Key string
	// UID of the template of which the row has an object; empty: the row has none.
	UID string
	// MustConfirm: the item stays until a person confirms its removal, whatever the budget.
	MustConfirm bool
}

func (s *rolloutStep) deferExclusions(holds map[string]bool) {
	s.pendingExclusions = map[string][]string{}
	if len(s.ExcludedItems) == 0 || s.confirmed || s.Deleting {
		return
	}
	losing, sticky := s.classifyLosing(holds)
	mustConfirm := slices.ContainsFunc(losing, s.losesItemsToConfirm)
	if len(losing) == 0 || s.isOrphanRemoval() && !mustConfirm {
		return
	}
	if !mustConfirm && s.spendRemovalBudget(losing, unionClusterNames(s.RecentlyRemoved, s.removedByEdit), sticky) {
		return
	}
	for _, c := range losing {
		s.pendingExclusions[c] = s.listLosingItems(c)
	}
}

// classifyLosing defers the losses of rows that wait themselves, and lists the other
// clusters that lose items. sticky: some of the losses wait for a confirmation already.
func (s *rolloutStep) classifyLosing(holds map[string]bool) (losing []string, sticky bool) {
	for c, row := range s.Rows {
		lost := s.listLosingItems(c)
		v, _ := s.Decision.FindVerdict(c)
		switch {
		case len(lost) == 0:
		case holds[c], s.isBlockedByCapacity(c, v):
			s.pendingExclusions[c] = lost
		case s.isRemovalAdmitted(c):
		case slices.Contains(s.staying, c) && !s.staysAtRevision(c, &row.Spec):
			losing = append(losing, c)
			sticky = sticky || len(row.Spec.ExcludedPending) > 0
		}
	}
	return losing, sticky
}

// losesItemsToConfirm reports whether an item that the row of the cluster loses needs a confirmation.
func (s *rolloutStep) losesItemsToConfirm(c string) bool {
	return slices.ContainsFunc(s.ExcludedItems[c], func(u ExcludedItem) bool { return u.UID != "" && u.MustConfirm })
}

// listLosingItems lists, by key, the items that the row of the cluster has and that the
// target excludes there.
func (s *rolloutStep) listLosingItems(c string) (keys []string) {
	row, has := s.Rows[c]
	if v, known := s.Decision.FindVerdict(c); !has || row.Spec.Phase == atoll.RowRemoving || row.Spec.Phase == atoll.RowPending || known && v.UID != row.Spec.UID {
		return nil
	}
	for _, u := range s.ExcludedItems[c] {
		if u.UID != "" {
			keys = append(keys, u.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// splitConfirmedExclusions returns the items that are out of the row of a cluster, and those that
// stay until their removal is confirmed.
func (s *rolloutStep) splitConfirmedExclusions(c string) (excluded []string, pendingSince map[string]int64) {
	for _, u := range s.ExcludedItems[c] {
		if !slices.Contains(s.pendingExclusions[c], u.Key) {
			excluded = append(excluded, u.Key)
		}
	}
	slices.Sort(excluded)
	return excluded, s.exclusionStartTimes(c, s.pendingExclusions[c])
}

// exclusionStartTimes returns since when the items wait, in Unix seconds.
func (s *rolloutStep) exclusionStartTimes(c string, keys []string) map[string]int64 {
	if len(keys) == 0 {
		return nil
	}
	out := make(map[string]int64, len(keys))
	for _, key := range keys {
		if since, waits := s.Rows[c].Spec.ExcludedPending[key]; waits {
			out[key] = since
		} else {
			out[key] = s.nowUnix
		}
	}
	return out
}

// addExclusionsToPendingRemoval adds the items that wait to the pending removal. A row that waits
// itself is in it as a whole.
func (s *rolloutStep) addExclusionsToPendingRemoval() {
	for _, c := range s.staying {
		spec := s.nextSpecs[c]
		if len(s.pendingExclusions[c]) == 0 || len(spec.ExcludedPending) == 0 {
			continue
		}
		var ids []string
		since := ""
		for _, u := range s.ExcludedItems[c] {
			if at, waits := spec.ExcludedPending[u.Key]; waits {
				ids, since = append(ids, u.Key+" "+u.UID), fmt.Sprintf("%s %d", since, at)
			}
		}
		slices.Sort(ids)
		s.pendingRemoval.addItemRemoval(c, *spec, ids, since)
	}
}
