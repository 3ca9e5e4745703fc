package kinds

import (
	"slices"
	"strconv"

	"atoll.dev/atoll/internal/quantity"
)

var claimRank = map[string]int64{"Lost": 1, "Pending": 2, "Bound": 3}

// aggregateVolumeClaim returns the worst phase and the smallest capacity.
func aggregateVolumeClaim(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 { return []int64{claimRank[r.P], r.storageCapacity()} })
	st := a.copyTemplateStatus()
	st["phase"] = orElse(least.P, "Pending")
	delete(st, "capacity")
	delete(st, "accessModes")
	if least.P == "Bound" {
		if modes := listField(specOf(a.template), "accessModes"); len(modes) > 0 {
			st["accessModes"] = slices.Clone(modes)
		}
		if len(least.L) > 0 {
			st["capacity"] = map[string]any{"storage": least.L[0]}
		}
	}
	return st, true
}

func (r clusterRow) storageCapacity() int64 {
	if len(r.L) == 0 {
		return 0
	}
	q, err := quantity.Parse(r.L[0])
	if err != nil {
		return 0
	}
	return quantity.WholeUnits(q)
}

var volumeRank = map[string]int64{"Failed": 1, "Pending": 2, "Available": 3, "Released": 4, "Bound": 5}

func aggregatePersistentVolume(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	st := a.copyTemplateStatus()
	st["phase"] = orElse(a.leastFinishedRow(func(r clusterRow) []int64 { return []int64{volumeRank[r.P]} }).P, "Pending")
	return st, true
}

func aggregateDisruptionBudget(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 {
		return []int64{healthRank[r.Health], r.countAt(0), r.countAt(1) - r.countAt(2)}
	})
	n := least.firstCounts(len(budgetCounts))
	if a.divided {
		n = a.sumCounts(len(budgetCounts))
	}
	st := map[string]any{}
	setNonZeroCounts(st, budgetCounts, n)
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if cs := a.buildStandardConditions(least.conditionsWithMessages()); len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

func aggregateAutoscaler(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	least := a.leastFinishedRow(func(r clusterRow) []int64 { return []int64{healthRank[r.Health], r.countAt(0) - r.countAt(1)} })
	n := least.firstCounts(len(autoscalerCounts))
	if a.divided {
		n = a.sumCounts(len(autoscalerCounts))
	}
	st := map[string]any{}
	setNonZeroCounts(st, autoscalerCounts, n)
	if a.observed > 0 {
		st["observedGeneration"] = a.observed
	}
	if t := a.plausibleTime(least.timeAt(0)); t != 0 {
		st["lastScaleTime"] = formatTimestamp(t)
	}
	if a.template.GroupVersionKind().Version == "v1" {
		return st, true
	}
	cs := make([]any, 0, len(least.C))
	for _, c := range least.conditionsWithMessages() {
		c.hasObserved = false
		cs = append(cs, a.buildCondition(c, false))
	}
	if len(cs) > 0 {
		st["conditions"] = cs
	}
	return st, true
}

// aggregateGeneric returns the conditions and the phase of the least finished cluster, and the
// counts of the kind. Counts are summed where the item is divided.
func aggregateGeneric(a *statusAggregation) (map[string]any, bool) {
	if a.hasNothingToWrite() {
		return nil, false
	}
	k := a.traits
	least := a.leastFinishedRow(k.genericProgress)
	if !least.reported {
		return nil, false
	}
	st := a.copyTemplateStatus()
	if k.countFields != nil {
		for _, name := range k.countFields {
			delete(st, name)
		}
		setNonZeroCounts(st, k.countFields, a.replicaCounts(k.countFields, least))
	}
	a.setSumFields(st)
	delete(st, "conditions")
	if cs := a.buildStandardConditions(least.conditionsWithMessages()); len(cs) > 0 {
		st["conditions"] = cs
	}
	if k.hasAddressList {
		a.joinTypedAddresses(st)
	}
	setPhase(st, k.statusPhasePath(), least.P)
	a.setReadyBoolean(st)
	k.addRequiredFields(st)
	switch {
	case !least.hasFlag(flagObserves) || a.observed <= 0:
	case k.generationIsText:
		st["observedGeneration"] = strconv.FormatInt(a.observed, 10)
	default:
		st["observedGeneration"] = a.observed
	}
	return st, true
}

// setSumFields writes the sums of sumFields over the connected clusters.
func (a *statusAggregation) setSumFields(st map[string]any) {
	k := a.traits
	sums := a.sumCounts(len(k.sumFields))
	for i, at := range k.sumFields {
		parent := nestedMap(st, at[:len(at)-1]...)
		switch {
		case sums[i] != 0 || k.writesZeros:
			setValue(st, at, sums[i])
		case parent != nil:
			delete(parent, at[len(at)-1])
		}
	}
}

// addRequiredFields adds the fields that the API server requires and that a status lacks.
func (k *kindTraits) addRequiredFields(st map[string]any) {
	add := func(name string, empty any) {
		if name != "" && st[name] == nil {
			st[name] = empty
		}
	}
	for _, name := range k.requiredObjects {
		add(name, map[string]any{})
	}
	for _, name := range k.requiredTexts {
		add(name, "")
	}
	if k.writesZeros {
		for _, name := range k.countFields {
			add(name, int64(0))
		}
	}
}

// setReadyBoolean joins the boolean at readyPath, where a cluster reports it.
func (a *statusAggregation) setReadyBoolean(st map[string]any) {
	at := a.traits.readyPath
	_, ready := a.firstClusterWith(flagReady)
	_, notReady := a.firstClusterWith(flagNotReady)
	if at == nil || !ready && !notReady {
		return
	}
	setValue(st, at, a.allRowsHave(flagReady))
}

// setValue writes a value into a status, and the maps above it.
func setValue(st map[string]any, at fieldPath, v any) {
	for _, key := range at[:len(at)-1] {
		next, ok := st[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			st[key] = next
		}
		st = next
	}
	st[at[len(at)-1]] = v
}

// genericProgress returns the health or the replica progress of a row, then the number of its
// positive conditions.
func (k *kindTraits) genericProgress(r clusterRow) []int64 {
	met := int64(0)
	for _, c := range unpackConditions(r.C) {
		if customaryConditions[c.conditionType] && c.hasStatus("True") && !negativeConditions[c.conditionType] {
			met++
		}
	}
	if k.countFields != nil {
		return append(replicaProgress(r), met)
	}
	return []int64{healthRank[r.Health], met}
}

// setPhase writes the phase into a status, and removes the field where the phase is empty.
func setPhase(st map[string]any, at fieldPath, phase string) {
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
