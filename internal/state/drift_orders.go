package state

import (
	"errors"
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// CheckDriftOrder returns why an order to correct drift of the Bundle's objects does nothing, or would exceed the
// approvals of a row. It returns nil when a cluster reports at least one of the IDs. Drift that has changed since
// the order was made has another ID, and is not corrected. It reads rows with drift alone.
func (t *HubTables) CheckDriftOrder(bundleUID string, order atoll.DriftOrder) error {
	isReported := false
	for row := range t.driftedRowsOf(bundleUID) {
		open := row.Spec.OpenApprovals(row.Status)
		more := 0
		for id := range reportedDriftIDs(row) {
			if !slices.Contains(order.IDs, id) {
				continue
			}
			isReported = true
			if !hasApproval(open, id) {
				more++
			}
		}
		if more > 0 && len(open)+more > atoll.MaxRowApprovals {
			return fmt.Errorf("cluster %s has not answered %d approvals, and at most %d are possible: wait until the cluster is connected and answers them",
				row.Cluster, len(open), atoll.MaxRowApprovals)
		}
	}
	if !isReported {
		return errors.New("no cluster reports this drift now, because it changed or is corrected: `atoll drift` lists what is there")
	}
	return nil
}

// PendingDriftOrders returns the orders with the IDs alone that clusters report and for which no row of the Bundle
// has an approval yet.
func (t *HubTables) PendingDriftOrders(bundleUID string, orders []atoll.DriftOrder) (out []atoll.DriftOrder) {
	pending := map[string]bool{}
	for row := range t.driftedRowsOf(bundleUID) {
		for id := range reportedDriftIDs(row) {
			if !hasApproval(row.Spec.Approvals, id) {
				pending[id] = true
			}
		}
	}
	for _, o := range orders {
		o.IDs = slices.DeleteFunc(slices.Clone(o.IDs), func(id string) bool { return !pending[id] })
		if len(o.IDs) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// UntakenDriftOrders returns the orders with the IDs alone that may still become an approval of one of the rows, which are
// all rows of a Bundle. It drops an ID that a row has an approval of, and an ID that no row reports once every row
// reports all of its drift at its latest generation: IDs never come again.
func UntakenDriftOrders(orders []atoll.DriftOrder, rows []Row) (out []atoll.DriftOrder) {
	taken, reported, isComplete := map[string]bool{}, map[string]bool{}, true
	for _, row := range rows {
		for _, a := range row.Spec.Approvals {
			taken[a.ID] = true
		}
		if isComplete = isComplete && reportsAllDrift(row); row.Status == nil {
			continue
		}
		for id := range reportedDriftIDs(row) {
			reported[id] = true
		}
	}
	for _, o := range orders {
		o.IDs = slices.DeleteFunc(slices.Clone(o.IDs), func(id string) bool { return taken[id] || isComplete && !reported[id] })
		if len(o.IDs) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// reportsAllDrift reports whether the row's cluster has compared all objects at the latest generation, and its report has
// room for all drift.
func reportsAllDrift(row Row) bool {
	s := row.Status
	if s == nil || !s.Applied || s.Generation < row.Spec.Generation {
		return false
	}
	left := s.Drifted
	for i := range s.Items {
		if s.Items[i].Drift != nil {
			left--
		}
	}
	return left == 0
}

func hasApproval(approvals []atoll.DriftApproval, id string) bool {
	return slices.ContainsFunc(approvals, func(a atoll.DriftApproval) bool { return a.ID == id })
}

// driftedRowsOf yields the rows of the Bundle whose clusters report drift.
func (t *HubTables) driftedRowsOf(bundleUID string) func(yield func(Row) bool) {
	return func(yield func(Row) bool) {
		for _, cluster := range t.Drifted.ClustersOf(bundleUID) {
			if row, ok := t.Rows.Get(bundleUID, cluster); ok && row.Status != nil && !yield(row) {
				return
			}
		}
	}
}

// reportedDriftIDs yields the IDs of drift that the row's cluster reports and that a person may approve.
func reportedDriftIDs(row Row) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range row.Status.Items {
			if d := row.Status.Items[i].Drift; d != nil && d.ID != "" && !yield(d.ID) {
				return
			}
		}
	}
}
