package schedule

import (
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// FilterCapacity keeps a Bundle out of a cluster whose stated capacity it would exceed.
const FilterCapacity = "capacity"

// exceedsCapacity reports whether a bound keeps the Bundle from coming to the cluster, with
// a reason unless explanations are skipped.
func (in *Input) exceedsCapacity(c *Cluster) (reason string, exceedsCapacity bool) {
	if len(c.Capacity) == 0 || in.Demand == nil {
		return "", false
	}
	others, _ := in.resolveFacts().UsageOf(c)
	for i, ask := range in.Demand.minimumUsages {
		b, over := c.Capacity.firstExceeded(others, ask, nil)
		if !over {
			return "", false
		}
		if i == 0 && !in.SkipExplanations {
			reason = fmt.Sprintf("%s is %s, of which %s are used, and the bundle requests %s", b.FieldPath(), b.FormatQuantity(b.Quantity), b.FormatQuantity(others.QuantityOf(b.Name)), b.FormatQuantity(ask.QuantityOf(b.Name)))
		}
	}
	return reason, true
}

// newRevisionExceedsCapacity returns the bound that keeps the Bundle's row from the newest
// revision, which needs more than what is left for the row's share; empty: none.
func (in *Input) newRevisionExceedsCapacity(c *Cluster, row *atoll.RowSpec) string {
	others, own := in.resolveFacts().UsageOf(c)
	ask := in.Demand.UsageFor(row.Assigned)
	b, over := c.Capacity.firstExceeded(others, ask, own)
	if !over {
		return ""
	}
	return fmt.Sprintf("%s is %s, others use %s, and the newest revision requests %s instead of %s",
		b.FieldPath(), b.FormatQuantity(b.Quantity), b.FormatQuantity(others.QuantityOf(b.Name)), b.FormatQuantity(ask.QuantityOf(b.Name)), b.FormatQuantity(own.QuantityOf(b.Name)))
}

// applyCapacityFilter refuses, by the stated capacity, clusters that the other filters
// admit. It notes clusters whose capacity keeps the Bundle from coming or changing.
func (d *groupDecider) applyCapacityFilter(c *Cluster, row *atoll.RowSpec, v *Verdict) {
	in := d.input
	if len(c.Capacity) == 0 || in.Demand == nil {
		return
	}
	switch {
	case row != nil && row.Phase != atoll.RowPending && v.Outcome != OutcomeGone:
		n := v.Notes()
		n.CapacityReason = in.newRevisionExceedsCapacity(c, row)
		if v.SetNotes(n); n.CapacityReason != "" {
			d.CapacityBlocked = append(d.CapacityBlocked, c.Name)
		}
	case v.Outcome == OutcomePlaced, v.Outcome == OutcomeOut && v.Filter == FilterGroups && d.filter.findOtherAdmittingGroup(c) != nil:
		if reason, full := in.exceedsCapacity(c); full {
			v.Outcome, v.PlacementFingerprint, v.Filter, v.Reason = OutcomeOut, "", FilterCapacity, reason
			d.CapacityBlocked = append(d.CapacityBlocked, c.Name)
		}
	}
}

// recordCapacity records the stated capacity of a cluster that is to hold the Bundle, for
// divisions and explanations.
func (d *groupDecider) recordCapacity(v *Verdict, c *Cluster) {
	in := d.input
	if len(c.Capacity) == 0 || in.Demand == nil || in.SkipExplanations && len(in.Workloads) == 0 {
		return
	}
	if d.statedCapacity == nil {
		d.statedCapacity = map[string]statedCapacity{}
	}
	s := statedCapacity{bounds: c.Capacity, rowHeld: v.Notes().CapacityReason != ""}
	s.others, s.ownBefore = in.resolveFacts().UsageOf(c)
	d.statedCapacity[c.Name] = s
}

// KeepRowsAtRevision returns the decision in which the rows in these clusters stay at their revision
// and share, for the given reasons.
func (d Decision) KeepRowsAtRevision(clusters map[string]string) Decision {
	d.Verdicts, d.statedCapacity = slices.Clone(d.Verdicts), maps.Clone(d.statedCapacity)
	d.CapacityBlocked = slices.AppendSeq(slices.Clone(d.CapacityBlocked), maps.Keys(clusters))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		reason, holds := clusters[v.Cluster]
		if !holds {
			continue
		}
		n := v.Notes()
		n.CapacityReason = reason
		v.SetNotes(n)
		if s, ok := d.statedCapacity[v.Cluster]; ok {
			s.rowHeld = true
			d.statedCapacity[v.Cluster] = s
		}
	}
	return d
}

// admitsWithCapacity reports whether the cluster fits and, for a newcomer, has capacity
// left. It notes clusters that have none.
func (in *Input) admitsWithCapacity(f *CompiledPlacement, c *Cluster) bool {
	if !f.AdmitsCluster(c) || in.refusesFailed(c) || !in.admitsInGroups(c) {
		return false
	}
	if row := in.heldRow(c); row == nil || row.Phase == atoll.RowPending {
		if _, full := in.exceedsCapacity(c); full {
			in.capacityBlocked = append(in.capacityBlocked, c.Name)
			return false
		}
	}
	return true
}

// statedCapacity of a cluster that holds the Bundle, or is to.
type statedCapacity struct {
	bounds, others ResourceUsage
	// ownBefore is what the Bundle used so far.
	ownBefore ResourceUsage
	// rowHeld: the row stays as it is.
	rowHeld bool
}

// CapacityBound is a bound of a cluster's stated capacity, and how much of it is used.
type CapacityBound struct {
	// Path in the Cluster's spec.
	Path string `json:"path"`
	// Stated, and Used by all Bundles there, this one included, as people write amounts.
	Stated string `json:"stated"`
	Used   string `json:"used"`
	// Over: more is used than stated.
	Over bool `json:"over,omitempty"`
}

// CapacityBounds returns the bounds of a cluster that the Bundle is in or is to come to; nil
// where it states none.
func (d Decision) CapacityBounds(cluster string) (out []CapacityBound) {
	s, ok := d.statedCapacity[cluster]
	if !ok {
		return nil
	}
	used := s.others.AddTimes(s.ownBefore, 1)
	for _, b := range s.bounds {
		n := used.QuantityOf(b.Name)
		out = append(out, CapacityBound{Path: b.FieldPath(), Stated: b.FormatQuantity(b.Quantity), Used: b.FormatQuantity(n), Over: n > b.Quantity})
	}
	return out
}

// capacityLimit returns how many replicas of a workload a cluster may have at most by its
// stated capacity, including those that it has.
func (s *shareAssigner) capacityLimit(at int, st *statedCapacity, key string) int64 {
	has := s.replicasAssignedByRow(int32(at), key)
	if st.rowHeld {
		return has
	}
	more := int64(Unbounded)
	for i := range s.demand.divided {
		if p := &s.demand.divided[i]; p.key == key {
			more = st.bounds.countFitting(st.others.AddTimes(s.ownUsage(at), 1), p.perReplica)
		}
	}
	if more > Unbounded-has {
		return Unbounded
	}
	return has + more
}

// ownUsage is what the Bundle uses of a cluster with what it has, and was given so far.
func (s *shareAssigner) ownUsage(at int) ResourceUsage {
	if s.givenUsage != nil && s.givenUsage[at] != nil {
		return s.givenUsage[at]
	}
	return s.demand.UsageFor(s.rowAt(int32(at)).Assigned)
}

// setCapacityLimits computes the limits of a workload by stated capacity.
func (s *shareAssigner) setCapacityLimits(item int) {
	s.capacityLimits = nil
	key := s.assignment.itemKey(item)
	for cluster, st := range s.statedCapacity {
		at, ok := s.assignment.findShare(cluster)
		if !ok {
			continue
		}
		n := s.capacityLimit(at, &st, key)
		if n == Unbounded {
			continue
		}
		if s.capacityLimits == nil {
			s.capacityLimits = slices.Repeat([]int64{Unbounded}, len(s.assignment.clusters))
		}
		s.capacityLimits[at] = n
	}
}

// limitByCapacity returns n, or the limit of the cluster if this is less.
func (s *shareAssigner) limitByCapacity(at int32, n int64) int64 {
	if s.capacityLimits == nil {
		return n
	}
	return min(n, s.capacityLimits[at])
}

// recordStatedCapacityUse records what clusters were given of a workload on top of what they had, and
// notes which would have got more.
func (s *shareAssigner) recordStatedCapacityUse(item int) {
	key := s.assignment.itemKey(item)
	for cluster := range s.statedCapacity {
		at, ok := s.assignment.findShare(cluster)
		if !ok {
			continue
		}
		n := s.assignment.replicasOf(int32(at), item)
		if s.capacityLimits != nil && n >= s.capacityLimits[at] && n < s.workloads[item].Replicas {
			s.assignment.CapacityBlocked = append(s.assignment.CapacityBlocked, cluster)
		}
		grown := n - s.replicasAssignedByRow(int32(at), key)
		for i := range s.demand.divided {
			if p := &s.demand.divided[i]; p.key == key && grown > 0 {
				if s.givenUsage == nil {
					s.givenUsage = make([]ResourceUsage, len(s.assignment.clusters))
				}
				s.givenUsage[at] = s.ownUsage(at).AddTimes(p.perReplica, grown)
			}
		}
	}
}

// countReplicasWithinStatedCapacity returns how many divided replicas a cluster admits by its stated
// capacity, including those that it has, and no more of any workload than there are.
func (in *Input) countReplicasWithinStatedCapacity(c *Cluster) (sum int64) {
	others, _ := in.resolveFacts().UsageOf(c)
	var has map[string]int64
	if row := in.heldRow(c); row != nil {
		has = row.Assigned
	}
	used := others.AddTimes(in.Demand.UsageFor(has), 1)
	for i := range in.Workloads {
		w := &in.Workloads[i]
		if w.needsOneCluster() {
			continue
		}
		key := w.Key.String()
		n := min(max(has[key], 0), max(w.Replicas, 0))
		for p := range in.Demand.divided {
			if p := &in.Demand.divided[p]; p.key == key {
				more := min(c.Capacity.countFitting(used, p.perReplica), max(w.Replicas, 0)-n)
				used, n = used.AddTimes(p.perReplica, more), n+more
			}
		}
		sum = quantity.AddCapped(sum, n)
	}
	return sum
}
