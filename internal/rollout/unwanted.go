package rollout

import (
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// keepBack decides which items that override rules keep out of clusters stay there until
// that is confirmed: those that rows have, where that are more clusters than an edit may
// take something out of. Only these items wait; the rows go on. holds are rows that wait
// themselves: they lose nothing meanwhile.
func (s *step) keepBack(holds map[string]bool) {
	s.notYet = map[string][]string{}
	if len(s.Unwanted) == 0 || s.released || s.Deleting {
		return
	}
	var losing []string
	sticky, going := false, map[string]bool{}
	for c, row := range s.Rows {
		lost := s.losing(c)
		switch {
		case len(lost) == 0:
		case holds[c]:
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
	total := len(going)
	for c, row := range s.Rows {
		if row.Spec.Phase == atoll.RowActive && !going[c] {
			total++
		}
	}
	for _, c := range losing {
		going[c] = true
	}
	slices.Sort(losing)
	if !sticky && !overBudget(s.Budget, len(going), total) {
		s.gone = append(slices.Clone(s.gone), losing...)
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
func (s *step) unwanted(c string) (notHere, notYet []string) {
	notYet = s.notYet[c]
	for _, u := range s.Unwanted[c] {
		if !slices.Contains(notYet, u.Key) {
			notHere = append(notHere, u.Key)
		}
	}
	slices.Sort(notHere)
	return notHere, notYet
}

// askUnwanted adds what waits to the plan. Rows that wait themselves are in it as a whole.
func (s *step) askUnwanted() {
	for _, c := range s.stays {
		spec := s.next[c]
		if len(s.notYet[c]) == 0 || len(spec.NotYet) == 0 {
			continue
		}
		var ids []string
		for _, u := range s.Unwanted[c] {
			if slices.Contains(spec.NotYet, u.Key) {
				ids = append(ids, u.Key+" "+u.UID)
			}
		}
		slices.Sort(ids)
		s.plan.items(c, *spec, ids)
	}
}

func unionOf(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}
