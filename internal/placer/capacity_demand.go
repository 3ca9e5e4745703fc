package placer

import (
	"context"

	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// capacityDemand is what a step needs about capacity to take it.
type capacityDemand struct {
	// demands by revision, of the target and of the rows.
	demands map[string]*schedule.Demand
	// bounds are the clusters with a stated capacity, by name, as decided on.
	bounds map[string]*schedule.Cluster
	// answers that the decision got, by cluster name.
	answers map[string]usageAnswer
}

// usageAnswer is what is used of a cluster, and its freedCount at that time.
type usageAnswer struct {
	others, own schedule.ResourceUsage
	freedCount  uint64
}

// takeCapacity takes what rows are about to use. When some cluster has less left than the
// decision found, nothing is taken, and full names these clusters. settle reports whether the
// rows were written, and returns what they do not use.
func (r *PlacementReconciler) takeCapacity(s *stepInput, out rollout.Output) (settle func(written bool), full map[string]string) {
	u, bundle, after := r.usage, s.bundle.Ref.UID, map[string]schedule.ResourceUsage{}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, spec := range out.Changes {
		c := s.demand.bounds[name]
		if c == nil || u.members[c.UID] == nil {
			continue
		}
		m := u.members[c.UID]
		var use schedule.ResourceUsage
		if spec != nil {
			use = s.demand.demands[spec.Revision].UsageFor(spec.Assigned)
		}
		own := m.byBundle[bundle]
		if after[c.UID] = use; c.Capacity.IsExceeded(m.total.AddTimes(own, -1), use, own) {
			if full == nil {
				full = map[string]string{}
			}
			full[name] = "others took the capacity that was left"
		}
	}
	if full != nil {
		return nil, full
	}
	before := map[string]schedule.ResourceUsage{}
	for uid, use := range after {
		m := u.members[uid]
		before[uid], m.takenBundles[bundle] = m.byBundle[bundle], true
		m.setUse(bundle, before[uid].MaxOf(use))
	}
	return func(written bool) { r.settleTakenCapacity(bundle, before, after, written) }, nil
}

// settleTakenCapacity sets the usage of rows to the written one, or back to the earlier one. It touches the
// clusters with freed capacity.
func (r *PlacementReconciler) settleTakenCapacity(bundle string, before, after map[string]schedule.ResourceUsage, written bool) {
	for _, name := range r.usage.settleUse(bundle, before, after, written) {
		r.capacityFreed(name)
	}
}

// settleUse sets the usage of rows, and returns the names of the clusters with freed capacity.
func (u *capacityUsage) settleUse(bundle string, before, after map[string]schedule.ResourceUsage, written bool) (freed []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid := range after {
		m := u.members[uid]
		if m == nil {
			continue
		}
		use := after[uid]
		if delete(m.takenBundles, bundle); !written {
			use = before[uid]
			m.markStale(bundle)
		}
		if m.setUse(bundle, use) {
			freed = append(freed, m.name)
		}
	}
	return freed
}

// capacityDemandOf returns the demand of a step on its clusters; empty when none states a
// capacity.
func (r *PlacementReconciler) capacityDemandOf(ctx context.Context, clusters []schedule.Cluster, rows []state.Row, target string) (s capacityDemand, err error) {
	for i := range clusters {
		if c := &clusters[i]; len(c.Capacity) > 0 {
			if s.bounds == nil {
				s = capacityDemand{demands: map[string]*schedule.Demand{}, bounds: map[string]*schedule.Cluster{}, answers: map[string]usageAnswer{}}
			}
			s.bounds[c.Name] = c
		}
	}
	if s.bounds == nil || target == "" {
		return capacityDemand{}, nil
	}
	need := []string{target}
	for i := range rows {
		if s.bounds[rows[i].Cluster] != nil {
			need = append(need, rows[i].Spec.Revision)
		}
	}
	for _, revision := range need {
		if s.demands[revision] != nil {
			continue
		}
		if s.demands[revision], err = r.demandOf(ctx, revision); err != nil {
			return s, err
		}
	}
	return s, nil
}

// usageReader reads what is used of clusters. It answers the same for a cluster throughout one
// decision.
type usageReader struct {
	r      *PlacementReconciler
	ctx    context.Context
	demand *capacityDemand
	bundle string
	// err is the first error.
	err error
}

// usageOf returns what others and the Bundle use of a cluster.
func (u *usageReader) usageOf(c *schedule.Cluster) (others, own schedule.ResourceUsage) {
	a, asked := u.demand.answers[c.Name]
	if asked || u.err != nil {
		return a.others, a.own
	}
	u.r.usage.mu.Lock()
	a.freedCount = u.r.usage.freedCounts[c.Name]
	u.r.usage.mu.Unlock()
	if a.others, a.own, u.err = u.r.usedCapacity(u.ctx, c, u.bundle); u.err == nil {
		u.demand.answers[c.Name] = a
	}
	return a.others, a.own
}
