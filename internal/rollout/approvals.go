package rollout

import (
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// approvalsOf returns the approvals that the row's member has not answered, with those that DriftOrders add
// for drift that the member reports now. An approval of other drift of an item replaces an earlier one.
func (s *rolloutStep) approvalsOf(c string, spec *atoll.RowSpec) []atoll.DriftApproval {
	row := s.Rows[c]
	if row.Spec.UID != spec.UID || row.Spec.Phase != atoll.RowActive {
		return nil
	}
	out := row.Spec.OpenApprovals(row.Status)
	if len(s.DriftOrders) == 0 || row.Status == nil || row.Status.Drifted == 0 {
		return out
	}
	out = slices.Clone(out)
	for i := range row.Status.Items {
		it := &row.Status.Items[i]
		order, ordered := s.driftOrderOf(it.Drift)
		if !ordered {
			continue
		}
		key := it.Key.String()
		if slices.ContainsFunc(out, func(a atoll.DriftApproval) bool { return a.Item == key && a.ID == it.Drift.ID }) {
			continue
		}
		out = slices.DeleteFunc(out, func(a atoll.DriftApproval) bool { return a.Item == key })
		if len(out) < atoll.MaxRowApprovals {
			out = append(out, atoll.DriftApproval{Item: key, ID: it.Drift.ID, By: order.By, At: s.nowUnix})
		}
	}
	slices.SortFunc(out, func(a, b atoll.DriftApproval) int { return strings.Compare(a.Item, b.Item) })
	if len(out) == 0 {
		return nil
	}
	return out
}

// driftOrderOf returns the order that names the drift; false without one.
func (s *rolloutStep) driftOrderOf(d *atoll.Drift) (atoll.DriftOrder, bool) {
	if d == nil || d.ID == "" {
		return atoll.DriftOrder{}, false
	}
	i := slices.IndexFunc(s.DriftOrders, func(o atoll.DriftOrder) bool { return slices.Contains(o.IDs, d.ID) })
	if i < 0 {
		return atoll.DriftOrder{}, false
	}
	return s.DriftOrders[i], true
}
