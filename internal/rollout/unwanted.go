package rollout

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// keepBack decides which items that override rules keep out of clusters stay there until
// that is confirmed: those that rows have, where that are more clusters than an edit may
// take something out of. Only these items wait; the rows go on. holds are rows that wait
// themselves: they lose nothing meanwhile, nor do those that have no capacity for the
// revision that would take it.
func (s *step) keepBack(holds map[string]bool) {
	s.notYet = map[string][]string{}
	if len(s.Unwanted) == 0 || s.released || s.Deleting {
		return
	}
	var losing []string
	sticky, going := false, map[string]bool{}
	for c, row := range s.Rows {
		lost := s.losing(c)
		v, _ := s.Decision.Verdict(c)
		switch {
		case len(lost) == 0:
		case holds[c], s.crowded(c, v):
			s.notYet[c] = lost
		case slices.Contains(s.stays, c) && !s.keeps(c, &row.Spec):
			losing = append(losing, c)
			sticky = sticky || len(row.Spec.NotYet) > 0
		}
	}
	if len(losing) == 0 || s.orphans() {
		return
	}
	for _, c := range slices.Concat(s.RecentOuts, s.gone) {
		going[c] = true
	}
	if s.affords(losing, going, sticky) {
		return
	}
	for _, c := range losing {
		s.notYet[c] = s.losing(c)
	}
}

// losing are the items, by key, that the row of the cluster has and that are not wanted
// there.
func (s *step) losing(c string) (keys []string) {
	row, has := s.Rows[c]
	if v, known := s.Decision.Verdict(c); !has || row.Spec.Phase == atoll.RowRemoving || known && v.UID != row.Spec.UID {
		return nil
	}
	for _, u := range s.Unwanted[c] {
		if u.UID != "" {
			keys = append(keys, u.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// unwanted items of a cluster: those that are out of its row, and those that stay until
// it is confirmed that they go.
func (s *step) unwanted(c string) (notHere []string, notYet map[string]int64) {
	for _, u := range s.Unwanted[c] {
		if !slices.Contains(s.notYet[c], u.Key) {
			notHere = append(notHere, u.Key)
		}
	}
	slices.Sort(notHere)
	return notHere, s.waiting(c, s.notYet[c])
}

// waiting items, and since when.
func (s *step) waiting(c string, keys []string) map[string]int64 {
	if len(keys) == 0 {
		return nil
	}
	out := make(map[string]int64, len(keys))
	for _, key := range keys {
		if since, waits := s.Rows[c].Spec.NotYet[key]; waits {
			out[key] = since
		} else {
			out[key] = s.now
		}
	}
	return out
}

// askUnwanted adds what waits to the plan. Rows that wait themselves are in it as a whole.
func (s *step) askUnwanted() {
	for _, c := range s.stays {
		spec := s.next[c]
		if len(s.notYet[c]) == 0 || len(spec.NotYet) == 0 {
			continue
		}
		var ids []string
		since := ""
		for _, u := range s.Unwanted[c] {
			if at, waits := spec.NotYet[u.Key]; waits {
				ids, since = append(ids, u.Key+" "+u.UID), fmt.Sprintf("%s %d", since, at)
			}
		}
		slices.Sort(ids)
		s.plan.items(c, *spec, ids, since)
	}
}
