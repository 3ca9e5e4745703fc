package interpret

import (
	"slices"
	"strconv"

	"atoll.dev/atoll/internal/atoll"
)

var claimRank = map[string]int64{"Lost": 1, "Pending": 2, "Bound": 3}

// aggregateClaim gives the worst phase and the smallest capacity.
func aggregateClaim(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 { return []int64{claimRank[r.P], r.capacity()} })
	st := a.copied()
	st["phase"] = orElse(least.P, "Pending")
	delete(st, "capacity")
	delete(st, "accessModes")
	if least.P == "Bound" {
		if modes := list(spec(a.template), "accessModes"); len(modes) > 0 {
			st["accessModes"] = slices.Clone(modes)
		}
		if len(least.L) > 0 {
			st["capacity"] = map[string]any{"storage": least.L[0]}
		}
	}
	return st, true
}

func (r row) capacity() int64 {
	if len(r.L) == 0 {
		return 0
	}
	q, err := atoll.ParseQuantity(r.L[0])
	if err != nil {
		return 0
	}
	return atoll.Units(q)
}

var volumeRank = map[string]int64{"Failed": 1, "Pending": 2, "Available": 3, "Released": 4, "Bound": 5}

func aggregateVolume(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	st := a.copied()
	st["phase"] = orElse(a.least(func(r row) []int64 { return []int64{volumeRank[r.P]} }).P, "Pending")
	return st, true
}

func aggregateBudget(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 { return []int64{healthRank[r.Health], r.n(0), r.n(1) - r.n(2)} })
	n := least.all(len(budgetCounts))
	if a.divided {
		n = a.sum(len(budgetCounts))
	}
	st := map[string]any{}
	counted(st, budgetCounts, n)
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if cs := a.standard(least.conditions()); len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

func aggregateAutoscaler(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	least := a.least(func(r row) []int64 { return []int64{healthRank[r.Health], r.n(0) - r.n(1)} })
	n := least.all(len(autoscalerCounts))
	if a.divided {
		n = a.sum(len(autoscalerCounts))
	}
	st := map[string]any{}
	counted(st, autoscalerCounts, n)
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if t := least.t(0); t != 0 {
		st["lastScaleTime"] = timestamp(t)
	}
	if a.template.GroupVersionKind().Version == "v1" {
		return st, true
	}
	cs := make([]any, 0, len(least.C))
	for _, c := range least.conditions() {
		c.hasObserved = false
		cs = append(cs, a.condition(c, false))
	}
	if len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

// aggregateGeneric gives the conditions and the phase of the least finished cluster, and
// the counts that the kind has: summed where it is divided.
func aggregateGeneric(a *aggregation) (map[string]any, bool) {
	if a.quiet() {
		return nil, false
	}
	k := a.kind
	least := a.least(func(r row) []int64 {
		met := int64(0)
		for _, c := range unpackConditions(r.C) {
			if customary[c.kind] && c.is("True") && c.kind != "Stalled" && c.kind != "Degraded" && c.kind != "Failed" {
				met++
			}
		}
		rank := []int64{healthRank[r.Health]}
		if k.counts != nil {
			rank = replicaProgress(r)
		}
		return append(rank, met)
	})
	if !least.reported {
		return nil, false
	}
	st := a.copied()
	if k.counts != nil {
		for _, name := range k.counts {
			delete(st, name)
		}
		counted(st, k.counts, a.replicaCounts(k.counts, least))
	}
	delete(st, "conditions")
	if cs := a.standard(least.conditions()); len(cs) > 0 {
		st["conditions"] = cs
	}
	if k.addresses {
		a.joinAddresses(st)
	}
	setPhase(st, k.phasePath(), least.P)
	for _, name := range k.objects {
		if st[name] == nil {
			st[name] = map[string]any{}
		}
	}
	switch {
	case !least.has(flagObserves) || a.observed <= 0:
	case k.textual:
		st["observedGeneration"] = strconv.FormatInt(a.observed, 10)
	default:
		st["observedGeneration"] = a.observed
	}
	return st, true
}

// setPhase of a status; where there is none, the field goes.
func setPhase(st map[string]any, at path, phase string) {
	for _, key := range at[:len(at)-1] {
		next, ok := st[key].(map[string]any)
		if !ok && phase == "" {
			return
		}
		if !ok {
			next = map[string]any{}
			st[key] = next
		}
		st = next
	}
	if last := at[len(at)-1]; phase == "" {
		delete(st, last)
	} else {
		st[last] = phase
	}
}
