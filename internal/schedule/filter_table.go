package schedule

import (
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// The filters of the table.
const (
	FilterAccepted  = "accepted"
	FilterDeleting  = "deleting"
	FilterRemoval   = "removal"
	FilterBoundSets = "NotInBoundSet"
	FilterSets      = "clusterSets"
	FilterExclude   = "exclude"
	FilterNames     = "clusterNames"
	FilterLabels    = "labelSelector"
	FilterFields    = "fieldSelector"
	FilterTaints    = "taints"
	FilterAPIs      = "apis"
	FilterKinds     = "kinds"
	FilterVersions  = "versions"
	FilterCEL       = "celSelector"
)

// FilterGroups refuses a cluster that is in no group of clusterAffinities, or only in
// groups that are not in use. It is about several Filters, so the table does not list it.
const FilterGroups = "clusterAffinities"

// filterTable lists the filters in the order in which they run: the cheap ones first,
// expressions last. One entry adds a filter. Newcomers, clusters that hold the Bundle,
// weights, targets, fingerprints and drift all walk the table.
var filterTable = []filterRule{
	{name: FilterAccepted, reason: atoll.ReasonNotAccepted, keepsRows: true, refuseCluster: (*CompiledPlacement).refuseUnaccepted},
	{name: FilterDeleting, reason: atoll.ReasonClusterDeleted, refuseCluster: (*CompiledPlacement).refuseDeleting},
	{name: FilterRemoval, reason: atoll.ReasonClusterRemoved, keepsRows: true, refuseCluster: (*CompiledPlacement).refuseByRemoval},
	{name: FilterBoundSets, reason: atoll.ReasonNotInBoundSet, isAsked: func(f *CompiledPlacement) bool { return f.bound != nil }, refuseCluster: (*CompiledPlacement).refuseByBoundSets},
	{
		name: FilterSets, reason: atoll.ReasonNotInClusterSet, place: placeSets, isPlacementWide: true, isStated: (*clusterSelectors).statesSets,
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(f.placementSelectors.setNames) }, refuseView: (*clusterSelectors).refuseBySets,
	},
	{
		name: FilterExclude, reason: atoll.ReasonClusterExcluded, isEdit: true, isStated: func(a *clusterSelectors) bool { return a.exclude != nil },
		refuseView: (*clusterSelectors).refuseByExclude,
	},
	{
		name: FilterNames, reason: atoll.ReasonClusterNotNamed, isEdit: true, isStated: func(a *clusterSelectors) bool { return a.names != nil },
		refuseView: (*clusterSelectors).refuseByName,
	},
	{
		name: FilterSets, reason: atoll.ReasonNotInClusterSet, place: placeGroupSets, isStated: (*clusterSelectors).statesSets,
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(f.setNames) }, refuseView: (*clusterSelectors).refuseBySets,
	},
	{
		name: FilterLabels, reason: atoll.ReasonLabelsDiffer, place: placeLabels, isStated: func(a *clusterSelectors) bool { return a.labelSelector != nil },
		fingerprint: func(f *CompiledPlacement) string { return f.labelFingerprint() }, refuseView: (*clusterSelectors).refuseByLabels,
	},
	{
		name: FilterFields, reason: atoll.ReasonFieldsDiffer, place: placeFields, isStated: func(a *clusterSelectors) bool { return a.fieldSelector != nil },
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(f.fieldSelector) }, refuseView: (*clusterSelectors).refuseByFields,
	},
	{name: FilterTaints, reason: atoll.ReasonTaintNotTolerated, refuseCluster: (*CompiledPlacement).refuseByTaints},
	{
		name: FilterAPIs, reason: atoll.ReasonAPINotServed, place: placeAPIs, isAsked: func(f *CompiledPlacement) bool { return len(f.apis) > 0 },
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(slices.Sorted(slices.Values(f.apis))) }, refuseCluster: (*CompiledPlacement).refuseByAPIs,
	},
	{name: FilterKinds, reason: atoll.ReasonKindNotServed, isAsked: func(f *CompiledPlacement) bool { return len(f.kinds) > 0 }, refuseCluster: (*CompiledPlacement).refuseByKinds},
	{name: FilterVersions, reason: atoll.ReasonVersionLosesFields, isAsked: func(f *CompiledPlacement) bool { return len(f.versionLosses) > 0 }, refuseCluster: (*CompiledPlacement).refuseByVersions},
	{
		name: FilterCEL, reason: atoll.ReasonExpressionRefuses, place: placeExpression, isPlacementWide: true, isStated: (*clusterSelectors).statesExpression,
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(f.placementSelectors.expression) }, refuseView: (*clusterSelectors).refuseByExpression,
	},
	{
		name: FilterCEL, reason: atoll.ReasonExpressionRefuses, place: placeGroupExpression, isStated: (*clusterSelectors).statesExpression,
		fingerprint: func(f *CompiledPlacement) string { return shortFingerprint(f.expression) }, refuseView: (*clusterSelectors).refuseByExpression,
	},
}

// ReasonCode returns the enumerated reason of the verdict, beside its sentence.
func (v *Verdict) ReasonCode() atoll.Reason {
	switch {
	case v.RowReason != "":
		return v.RowReason
	case v.OverflowStep > 0:
		return atoll.ReasonTakesOverflow
	case v.Filter == "":
		return atoll.ReasonFits
	}
	return reasonByFilter[v.Filter]
}

// reasonByFilter has the reasons of the table, and of the filters that compare several clusters.
var reasonByFilter = func() map[string]atoll.Reason {
	out := map[string]atoll.Reason{
		FilterGroups: atoll.ReasonNoGroupFits, FilterCapacity: atoll.ReasonNoCapacity, FilterPodFit: atoll.ReasonPodsDoNotFit, FilterSpread: atoll.ReasonSpreadExcludes,
		FilterMost: atoll.ReasonNotChosen, FilterWeights: atoll.ReasonNotChosen, FilterConnection: atoll.ReasonClusterDisconnected,
		FilterTogether: atoll.ReasonGroupElsewhere, FilterApart: atoll.ReasonKeptApart,
		FilterRebalance: atoll.ReasonRebalanced, FilterRescheduling: atoll.ReasonMovedToBetter,
		FilterSuspension: atoll.ReasonSchedulingSuspended, FilterFailover: atoll.ReasonApplicationFailed,
	}
	for i := range filterTable {
		out[filterTable[i].name] = filterTable[i].reason
	}
	return out
}()

// The places of fingerprints in what rows store, from 1. A new place comes last: rows
// keep what older hubs wrote.
const (
	placeLabels = 1 + iota
	placeFields
	placeExpression
	placeSets
	placeAPIs
	placeGroupExpression
	placeGroupSets
	lastPlace = placeGroupSets
)

// filterRule is an entry of the table. Either refuseCluster or refuseView is set.
type filterRule struct {
	name string
	// reason of the refusals.
	reason atoll.Reason
	// isEdit: only an edit of the placement makes this filter refuse a cluster.
	isEdit bool
	// keepsRows: a refusal never takes away what runs.
	keepsRows bool
	// place of the fingerprint in what rows store; 0: rows store none, so that a
	// refusal is never an edit.
	place       int
	fingerprint func(*CompiledPlacement) string

	// isAsked reports whether the terms state something for refuseCluster; nil: always.
	isAsked       func(*CompiledPlacement) bool
	refuseCluster func(*CompiledPlacement, *Cluster, question) (refusal, bool)

	// isStated reports whether the selectors state something for refuseView, which makes
	// reasons only where say is set. isPlacementWide: the selectors are those that hold in
	// every group.
	isStated        func(*clusterSelectors) bool
	isPlacementWide bool
	refuseView      func(a *clusterSelectors, c *atoll.ClusterView, say bool) (refusal, bool)
}

// question about a cluster: whether it is a newcomer, and whether the answer needs a reason.
type question struct{ newcomer, say bool }

// askedFilter is a rule of the table that the terms of a Filter state.
type askedFilter struct {
	*filterRule
	selectors   *clusterSelectors
	fingerprint string
}

// refusal by one filter.
type refusal struct {
	filter, reason string
	// by is the filter of the table; nil: a filter outside the table refuses.
	by *askedFilter
	// agentReported: the refusal rests on what the agent reports, so that it takes nothing
	// away.
	agentReported bool
}

// collectRequestedFilters notes the rules of the table that the terms state. The Filter must not move in
// memory afterwards.
func (f *CompiledPlacement) collectRequestedFilters() {
	f.precomputeRefusalReasons()
	f.placementSelectors.precomputeRefusalReasons()
	f.requested = make([]askedFilter, 0, len(filterTable))
	for i := range filterTable {
		one := askedFilter{filterRule: &filterTable[i], selectors: &f.clusterSelectors}
		if one.isPlacementWide {
			one.selectors = &f.placementSelectors
		}
		if one.isStated != nil && !one.isStated(one.selectors) || one.isAsked != nil && !one.isAsked(f) {
			continue
		}
		if one.place > 0 {
			one.fingerprint = one.filterRule.fingerprint(f)
		}
		f.requested = append(f.requested, one)
	}
}

// applyFilter applies one filter to a cluster.
func (a *askedFilter) applyFilter(f *CompiledPlacement, c *Cluster, q question) (r refusal, refused bool) {
	if a.refuseView != nil {
		r, refused = a.refuseView(a.selectors, &c.ClusterView, q.say)
	} else {
		r, refused = a.refuseCluster(f, c, q)
	}
	if refused {
		r.filter, r.by = a.name, a
	}
	return r, refused
}

// refusesNewcomer reports whether one filter refuses a cluster that does not hold the Bundle.
func (a *askedFilter) refusesNewcomer(f *CompiledPlacement, c *Cluster) (refused bool) {
	if a.refuseView != nil {
		_, refused = a.refuseView(a.selectors, &c.ClusterView, false)
	} else {
		_, refused = a.refuseCluster(f, c, question{newcomer: true})
	}
	return refused
}

// firstRefusal returns the first refusal of a cluster that does not hold the Bundle yet. It
// has a reason only where say is set.
func (f *CompiledPlacement) firstRefusal(c *Cluster, say bool) (refusal, bool) {
	for i := range f.requested {
		if r, refused := f.requested[i].applyFilter(f, c, question{newcomer: true, say: say}); refused {
			return r, true
		}
	}
	return refusal{}, false
}

// listRefusals lists the refusals of a cluster that holds the Bundle: all but those of
// NoExecute taints.
func (f *CompiledPlacement) listRefusals(c *Cluster) (out []refusal) {
	// A filter that refuses no newcomer refuses no cluster that holds the Bundle.
	if f.admitsNewcomer(c) {
		return nil
	}
	for i := range f.requested {
		if r, refused := f.requested[i].applyFilter(f, c, question{say: true}); refused {
			out = append(out, r)
		}
	}
	return out
}

// isPlacementEdit reports whether the refusal comes from an edit of the placement: a selector that
// the row does not store is a new one, all else drifted.
func (r *refusal) isPlacementEdit(remembered string) bool {
	return r.by.isEdit || r.by.fingerprint != "" && r.by.fingerprint != fingerprintAt(remembered, r.by.place)
}

// selectorFingerprints returns the fingerprints of the terms, in the order of the places.
// The first two are always there if any is, as they were before there were others.
func (f *CompiledPlacement) selectorFingerprints() string {
	var all [lastPlace]string
	n := 0
	for i := range f.requested {
		if place := f.requested[i].place; place > 0 {
			all[place-1], n = f.requested[i].fingerprint, max(n, place, 2)
		}
	}
	return strings.Join(all[:n], ".")
}

// fingerprintAt returns the fingerprint at a place of what a row stores.
func fingerprintAt(remembered string, place int) string {
	fingerprints, _, _ := strings.Cut(filterFingerprint(remembered), groupMark)
	for ; place > 1; place-- {
		_, fingerprints, _ = strings.Cut(fingerprints, ".")
	}
	first, _, _ := strings.Cut(fingerprints, ".")
	return first
}

func (a *clusterSelectors) statesSets() bool { return a.sets != nil }

func (a *clusterSelectors) statesExpression() bool { return a.expression != "" }

func (f *CompiledPlacement) refuseUnaccepted(c *Cluster, q question) (r refusal, refused bool) {
	if refused = !c.Accepted; refused && q.say {
		r.reason = "not accepted: `atoll accept " + c.Name + "` is missing"
	}
	return r, refused
}

func (f *CompiledPlacement) refuseDeleting(c *Cluster, _ question) (refusal, bool) {
	return refusal{reason: "the Cluster is being deleted"}, c.Deleting
}

func (f *CompiledPlacement) refuseByRemoval(c *Cluster, q question) (refusal, bool) {
	r := refusal{reason: removalReason}
	if q.say && c.RemovalHeld {
		r.reason += "; what runs there stays until `atoll confirm cluster/" + c.Name + "`"
	}
	return r, c.RemovalHeld || c.Removal != ""
}

// refuseByBoundSets refuses clusters that the namespace may not use.
func (f *CompiledPlacement) refuseByBoundSets(c *Cluster, _ question) (refusal, bool) {
	return refusal{reason: f.boundReason}, !hasAnyName(f.bound, c.Sets)
}
