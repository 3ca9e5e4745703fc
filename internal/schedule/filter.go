package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/phrase"
)

// Cluster is what placement sees of a Cluster: what was set on the hub, the kinds that it
// serves, and the reported properties that the hub's administrator listed.
type Cluster struct {
	atoll.ClusterView
	UID string
	// CreatedAt is when the Cluster was created, in Unix seconds.
	CreatedAt int64
	// TimeZone that the Cluster states; empty: none.
	TimeZone string
	Accepted bool
	Deleting bool
	// Removal of the cluster from the fleet; empty: it stays.
	Removal v1alpha1.ClusterRemovalMode
	// RemovalHeld: the cluster keeps its rows although it is to leave the fleet, since its
	// removal is not confirmed, or since the cluster is given up with its content.
	RemovalHeld bool
	Taints      []v1alpha1.Taint
	// Resources that its agent reported, by name. Only scores look at them.
	Resources []ResourceAmount
	// APIs that it serves; nil: not known.
	APIs *ServedAPIs
	// Capacity that it states: the most that Atoll may place there; nil: no bound.
	Capacity ResourceUsage
}

// ClusterOf returns the view of an API object, and shares memory with it. The caller adds
// sets, served APIs and properties, which are not in the object alone.
func ClusterOf(c *v1alpha1.Cluster) Cluster {
	out := Cluster{
		ClusterView: atoll.ClusterViewOf(c), UID: string(c.UID), CreatedAt: c.CreationTimestamp.Unix(), TimeZone: c.Spec.TimeZone,
		Accepted: c.Spec.Accepted, Deleting: c.DeletionTimestamp != nil, Taints: c.Spec.Taints,
		Resources: ResourceAmountsOf(&c.Status.Resources), Capacity: CapacityOf(c.Spec.Capacity),
	}
	if r := c.Spec.Removal; r != nil {
		out.Removal, out.RemovalHeld = r.Mode, r.Force || c.IsRemovalHeld()
	}
	return out
}

// PlacementTerms are all that decides which clusters may hold a Bundle.
type PlacementTerms struct {
	Placement v1alpha1.PlacementSpec
	// BoundSets names the ClusterSets that the Bundle's namespace may use; nil: every
	// cluster.
	BoundSets []string
	// Kinds of the Bundle's items that it does not bring along itself, as ServedAPIs names
	// them: "group/version/Kind".
	Kinds []string
	// FixedKinds are those of Kinds that go to clusters in the items' own version alone, though the hub
	// converts them: an older hub, which did not, read the templates last. Sorted.
	FixedKinds []string
	// VersionLosses of the Bundle's items, for the other API versions to which the hub converts them.
	VersionLosses VersionLosses
	// Rebalance is when a user requested to place the Bundle from scratch, in milliseconds;
	// zero: never. Rows that store an earlier rebalance, or none, are decided on as if
	// they were not there. The new choice then stays like any other.
	Rebalance time.Time
	// SummedWeights keeps the rule for static weights by which earlier versions placed the
	// Bundle: the weights of several matching entries add up, clusters without a weight are
	// candidates, and where no chosen cluster has a weight, each keeps its replicas.
	SummedWeights bool
}

// CompiledPlacement is compiled PlacementTerms. Read-only.
type CompiledPlacement struct {
	clusterSelectors
	// placementSelectors are the sets and the expression that hold in every group.
	placementSelectors clusterSelectors
	// requested are the filters that the terms state, in the order of the table.
	requested      []askedFilter
	bound          map[string]bool
	boundReason    string
	apis           []string
	kinds          []string
	fixedKinds     []string
	versionLosses  VersionLosses
	tolerations    []corev1.Toleration
	choice         *choiceRules
	decisionGroups []decisionGroup
	// placementFingerprint of the selectors, of the choice and of the rebalance, as rows store it.
	placementFingerprint string
	rebalanceAt          time.Time
	summedWeights        bool
	// affinityGroups are the groups of clusterAffinities, each a Filter with a groupName and
	// the list of all; nil where there are none.
	affinityGroups []*CompiledPlacement
	groupName      string
}

// CompilePlacement compiles a placement without other terms.
func CompilePlacement(p v1alpha1.PlacementSpec) *CompiledPlacement {
	return PlacementTerms{Placement: p}.CompilePlacement()
}

// CompilePlacement compiles the terms. Malformed terms refuse every cluster, with the error as
// the reason; admission keeps them out.
func (t PlacementTerms) CompilePlacement() *CompiledPlacement {
	p := &t.Placement
	base := CompiledPlacement{
		tolerations: p.ClusterTolerations, kinds: t.Kinds, fixedKinds: t.FixedKinds, versionLosses: t.VersionLosses, choice: compileChoice(p, t.SummedWeights), decisionGroups: compileDecisionGroups(p.DecisionGroups),
		rebalanceAt: t.Rebalance, summedWeights: t.SummedWeights,
	}
	base.placementSelectors.setClusterSets(p.ClusterSets)
	base.placementSelectors.setExpression(p.CELSelector)
	if t.BoundSets != nil {
		base.bound = make(map[string]bool, len(t.BoundSets))
		for _, s := range t.BoundSets {
			base.bound[s] = true
		}
		base.boundReason = explainUnboundSets(t.BoundSets)
	}
	for _, a := range p.APIs {
		base.apis = append(base.apis, formatAPIName(a))
	}
	if len(p.ClusterAffinities) == 0 {
		f := base
		f.setAffinity(p.ClusterAffinity)
		f.collectRequestedFilters()
		f.placementFingerprint = f.rowFingerprint(f.selectorFingerprints())
		return &f
	}
	groups := make([]*CompiledPlacement, 0, len(p.ClusterAffinities))
	for i := range p.ClusterAffinities {
		term := &p.ClusterAffinities[i]
		g := base
		g.setAffinity(&term.ClusterAffinity)
		g.setClusterSets(term.ClusterSets)
		g.setExpression(term.CELSelector)
		g.groupName = term.AffinityName
		g.collectRequestedFilters()
		g.placementFingerprint = g.rowFingerprint(g.selectorFingerprints() + groupMark + g.groupName)
		groups = append(groups, &g)
	}
	for _, g := range groups {
		g.affinityGroups = groups
	}
	base.affinityGroups = groups
	return &base
}

// rowFingerprint adds all else that rows store to the fingerprint of the selectors.
func (f *CompiledPlacement) rowFingerprint(selectors string) string {
	if f.choice != nil {
		selectors = appendChoiceFingerprint(selectors, f.choice.fingerprint)
	}
	return atoll.AppendRebalance(selectors, f.rebalanceAt)
}

func explainUnboundSets(bound []string) string {
	if len(bound) == 0 {
		return "no cluster set is bound to the namespace: a ClusterSetBinding is needed"
	}
	return fmt.Sprintf("is in none of the cluster sets that the namespace may use (%s)", formatNames(bound))
}

// formatNames lists the first few names for people.
func formatNames(names []string) string { return phrase.JoinFirst(names, 5, len(names)) }

func newNameSet(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func shortFingerprint(v any) string { return atoll.HashJSON(v)[:8] }

// groupMark stands before the name of the group in a row's fingerprint.
const groupMark = "@"

// CheckCluster reports whether a cluster that does not hold the Bundle yet may get it, in
// whichever group, and if not, the filter that refuses it and the reason.
func (f *CompiledPlacement) CheckCluster(c Cluster) (ok bool, filter, reason string) {
	if f.HasGroups() {
		r, refused := f.refuseByGroups(&c)
		return !refused, r.filter, r.reason
	}
	r, refused := f.firstRefusal(&c, true)
	return !refused, r.filter, r.reason
}

// AdmitsCluster is CheckCluster without a reason. It allocates nothing, except in
// expressions.
func (f *CompiledPlacement) AdmitsCluster(c *Cluster) bool {
	if f.HasGroups() {
		return slices.ContainsFunc(f.affinityGroups, func(g *CompiledPlacement) bool { return g.AdmitsCluster(c) })
	}
	return f.admitsNewcomer(c)
}

// admitsNewcomer reports whether no filter refuses a cluster that does not hold the Bundle.
func (f *CompiledPlacement) admitsNewcomer(c *Cluster) bool {
	for i := range f.requested {
		if f.requested[i].refusesNewcomer(f, c) {
			return false
		}
	}
	return true
}

// NamedClusters lists the clusters that the placement names; nil when it names none, so that
// any may fit.
func (f *CompiledPlacement) NamedClusters() []string {
	if f.HasGroups() {
		var all []string
		for _, g := range f.affinityGroups {
			if g.names == nil {
				return nil
			}
			all = append(all, g.NamedClusters()...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if f.names == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.names))
}

// removalReason of a cluster that leaves the fleet.
const removalReason = "the cluster is being removed from the fleet"

func hasAnyName(m map[string]bool, names []string) bool {
	for _, n := range names {
		if m[n] {
			return true
		}
	}
	return false
}

// refuseByTaints checks NoSchedule taints, and for newcomers also NoExecute ones: content
// that would be evicted is not placed. So a toleration for some seconds admits nothing new.
func (f *CompiledPlacement) refuseByTaints(c *Cluster, q question) (refusal, bool) {
	for i := range c.Taints {
		t := &c.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && !q.newcomer || t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		tol := f.findToleration(t)
		if tol != nil && (t.Effect != corev1.TaintEffectNoExecute || tol.TolerationSeconds == nil) {
			continue
		}
		r := refusal{}
		switch {
		case q.say && tol == nil:
			r.reason = fmt.Sprintf("taint %s is not tolerated", freecapacity.FormatTaint(*t))
		case q.say:
			r.reason = fmt.Sprintf("taint %s is tolerated for %d s only", freecapacity.FormatTaint(*t), *tol.TolerationSeconds)
		}
		return r, true
	}
	return refusal{}, false
}

// countAvoidedTaints counts the PreferNoSchedule taints of the cluster that are not tolerated.
func (f *CompiledPlacement) countAvoidedTaints(c *Cluster) (n int) {
	for i := range c.Taints {
		if t := &c.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && f.findToleration(t) == nil {
			n++
		}
	}
	return n
}

// eviction is when NoExecute taints evict what runs, and why; at is zero: never.
type eviction struct {
	at     time.Time
	reason string
	cause  evictionCause
}

// isDue reports whether the time of the eviction has come.
func (e eviction) isDue(now time.Time) bool { return !e.at.IsZero() && !e.at.After(now) }

// isEarlierThan reports whether the eviction comes before another one, which may be none.
func (e eviction) isEarlierThan(other eviction) bool {
	return !e.at.IsZero() && (other.at.IsZero() || e.at.Before(other.at))
}

// findEviction returns the first eviction by the cluster's taints. A taint that evicts in any case counts before a due
// one that needs replacements. kept are the causes that evict nothing.
func (f *CompiledPlacement) findEviction(c *Cluster, now time.Time, kept keptCauses) eviction {
	var surely, ifReplaced eviction
	for i := range c.Taints {
		t := &c.Taints[i]
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		e := f.evictionBy(t, now)
		switch e.cause = causeOf(t); {
		case kept[e.cause]:
		case e.cause.needsReplacement() && e.isEarlierThan(ifReplaced):
			ifReplaced = e
		case !e.cause.needsReplacement() && e.isEarlierThan(surely):
			surely = e
		}
	}
	if ifReplaced.isEarlierThan(surely) && !surely.isDue(now) {
		return ifReplaced
	}
	return surely
}

// evictionBy returns the eviction by one NoExecute taint.
func (f *CompiledPlacement) evictionBy(t *v1alpha1.Taint, now time.Time) eviction {
	tol := f.findToleration(t)
	switch {
	case tol == nil:
		return eviction{at: now, reason: fmt.Sprintf("taint %s is not tolerated", freecapacity.FormatTaint(*t))}
	case tol.TolerationSeconds == nil:
		return eviction{}
	}
	s := *tol.TolerationSeconds
	e := eviction{at: now, reason: fmt.Sprintf("taint %s was tolerated for %d s", freecapacity.FormatTaint(*t), s)}
	switch {
	case s <= 0:
	case t.TimeAdded == nil:
		return eviction{}
	default:
		e.at = t.TimeAdded.Add(time.Duration(min(s, maxSeconds)) * time.Second)
	}
	return e
}

// maxSeconds keeps a duration from overflowing: 100 years.
const maxSeconds = 100 * 365 * 24 * 3600

// findToleration returns the first toleration that covers the taint; nil if none does.
func (f *CompiledPlacement) findToleration(t *v1alpha1.Taint) *corev1.Toleration {
	for i := range f.tolerations {
		if coversTaint(&f.tolerations[i], t) {
			return &f.tolerations[i]
		}
	}
	return nil
}

func coversTaint(tol *corev1.Toleration, t *v1alpha1.Taint) bool {
	if tol.Effect != "" && tol.Effect != t.Effect || tol.Key != "" && tol.Key != t.Key {
		return false
	}
	switch tol.Operator {
	case "", corev1.TolerationOpEqual:
		return tol.Key != "" && tol.Value == t.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
