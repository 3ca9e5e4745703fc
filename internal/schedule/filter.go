package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Cluster is what placement sees of a Cluster: what was set on the hub, which kinds it
// serves, and of what its agent reports else the properties that the hub's admin listed.
type Cluster struct {
	atoll.ClusterView
	UID      string
	Accepted bool
	Deleting bool
	// Removal of the cluster from the fleet; empty: it stays.
	Removal v1alpha1.ClusterRemovalMode
	// Held: what is there stays although the cluster is to leave the fleet, since that is not
	// confirmed, or since the cluster is given up with what it holds.
	Held   bool
	Taints []v1alpha1.Taint
	// Resources that its agent reported, by name. Only scores look at them.
	Resources []Amount
	// APIs that it serves; nil: not known.
	APIs *APIs
	// Capacity that it states: the most that Atoll may place there; nil: no bound.
	Capacity Use
}

// ClusterOf an API object; shares memory with it. Sets, APIs and properties, which the
// object alone does not tell, are the caller's to add.
func ClusterOf(c *v1alpha1.Cluster) Cluster {
	out := Cluster{
		ClusterView: atoll.ViewOf(c), UID: string(c.UID),
		Accepted: c.Spec.Accepted, Deleting: c.DeletionTimestamp != nil, Taints: c.Spec.Taints,
		Resources: AmountsOf(&c.Status.Resources), Capacity: CapacityOf(c.Spec.Capacity),
	}
	if r := c.Spec.Removal; r != nil {
		out.Removal, out.Held = r.Mode, r.Force || c.RemovalHeld()
	}
	return out
}

// The filters, in the order in which they are asked.
const (
	FilterAccepted = "accepted"
	FilterDeleting = "deleting"
	FilterRemoval  = "removal"
	FilterExclude  = "exclude"
	FilterNames    = "clusterNames"
	FilterBound    = "NotInBoundSet"
	FilterSets     = "clusterSets"
	FilterLabels   = "labelSelector"
	FilterFields   = "fieldSelector"
	FilterAPIs     = "apis"
	FilterKinds    = "kinds"
	FilterCEL      = "celSelector"
	FilterTaints   = "taints"
	// FilterGroups: the cluster is in no group of clusterAffinities, or another group is
	// in use.
	FilterGroups = "clusterAffinities"
)

// Terms are all that decides which clusters may hold a Bundle.
type Terms struct {
	Placement v1alpha1.PlacementSpec
	// Bound names the ClusterSets that the Bundle's namespace may use; nil: it may use
	// every cluster.
	Bound []string
	// Kinds that the Bundle's items are of and that it does not bring along itself, as
	// APIs names them: "group/version/Kind".
	Kinds []string
	// Rebalance is when somebody asked to place the Bundle from scratch, in milliseconds:
	// rows that remember an earlier one, or none, are decided on as if they were not there,
	// and what is chosen then stays like any other choice. Zero: never.
	Rebalance time.Time
}

// Filter is Terms made ready to be asked about many clusters.
type Filter struct {
	selectors
	// common are the sets and the expression that hold in every group.
	common      selectors
	bound       map[string]bool
	boundReason string
	apis        []string
	apisPrint   string
	kinds       []string
	tolerations []corev1.Toleration
	choice      *choice
	groups      []decisionGroup
	// print of the selectors, of the choice and of the rebalance, as rows remember it.
	print     string
	rebalance time.Time
	// fallbacks are the groups of clusterAffinities, each a Filter that tells its name and
	// knows all of them; nil where there are none.
	fallbacks []*Filter
	term      string
}

// Compile a placement alone.
func Compile(p v1alpha1.PlacementSpec) *Filter { return Terms{Placement: p}.Compile() }

// Compile the terms. What is malformed refuses every cluster, with the error as the
// reason; admission keeps that out.
func (t Terms) Compile() *Filter {
	p := &t.Placement
	base := Filter{
		tolerations: p.ClusterTolerations, kinds: t.Kinds, choice: compileChoice(p), groups: compileGroups(p.DecisionGroups),
		rebalance: t.Rebalance,
	}
	base.common.useSets(p.ClusterSets)
	base.common.useCEL(p.CELSelector)
	if t.Bound != nil {
		base.bound = make(map[string]bool, len(t.Bound))
		for _, s := range t.Bound {
			base.bound[s] = true
		}
		base.boundReason = boundReason(t.Bound)
	}
	for _, a := range p.APIs {
		base.apis = append(base.apis, nameAPI(a))
	}
	if len(base.apis) > 0 {
		base.apisPrint = print8(slices.Sorted(slices.Values(base.apis)))
	}
	if len(p.ClusterAffinities) == 0 {
		f := base
		f.selectors = compileAffinity(p.ClusterAffinity)
		f.print = f.whole(f.prints())
		return &f
	}
	groups := make([]*Filter, 0, len(p.ClusterAffinities))
	for i := range p.ClusterAffinities {
		term := &p.ClusterAffinities[i]
		g := base
		g.selectors = compileAffinity(&term.ClusterAffinity)
		g.own = true
		g.useSets(term.ClusterSets)
		g.useCEL(term.CELSelector)
		g.term = term.AffinityName
		g.print = g.whole(g.prints() + groupMark + g.term)
		groups = append(groups, &g)
	}
	for _, g := range groups {
		g.fallbacks = groups
	}
	base.fallbacks = groups
	return &base
}

// prints of all selectors, as rows remember them.
func (f *Filter) prints() string {
	if f.own {
		return printOf(f.labelPrint, f.fieldPrint, f.common.celPrint, f.common.setsPrint, f.apisPrint, f.celPrint, f.setsPrint)
	}
	return printOf(f.labelPrint, f.fieldPrint, f.common.celPrint, f.common.setsPrint, f.apisPrint)
}

// whole is the print of the selectors with all else that rows remember.
func (f *Filter) whole(selectors string) string {
	if f.choice != nil {
		selectors = withChoice(selectors, f.choice.print)
	}
	return atoll.WithRebalance(selectors, f.rebalance)
}

func boundReason(bound []string) string {
	if len(bound) == 0 {
		return "no cluster set is bound to the namespace: a ClusterSetBinding is needed"
	}
	return fmt.Sprintf("is in none of the cluster sets that the namespace may use (%s)", list(bound))
}

// list names for people, the first few of them.
func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func set(names []string) map[string]bool {
	if len(names) == 0 {
		return nil
	}
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

func print8(v any) string { return atoll.HashJSON(v)[:8] }

// The places of the prints in what rows remember.
const (
	printLabels = iota
	printFields
	printCEL
	printSets
	printAPIs
	printOwnCEL
	printOwnSets
)

// groupMark stands before the name of the group in what a row remembers.
const groupMark = "@"

// printOf selectors, in the order of the places. The first two are always there if any
// is, as they were before there were others.
func printOf(prints ...string) string {
	n := len(prints)
	for n > 0 && prints[n-1] == "" {
		n--
	}
	if n == 0 {
		return ""
	}
	return strings.Join(prints[:max(n, 2)], ".")
}

// printAt gives the print at a place of what a row remembers.
func printAt(remembered string, place int) string {
	prints, _, _ := strings.Cut(printOfFilters(remembered), groupMark)
	for ; place > 0; place-- {
		_, prints, _ = strings.Cut(prints, ".")
	}
	first, _, _ := strings.Cut(prints, ".")
	return first
}

// Fits tells whether a cluster that does not hold the Bundle yet may get it, in
// whichever group, and if not, which filter refuses it and why.
func (f *Filter) Fits(c Cluster) (ok bool, filter, reason string) {
	if f.Grouped() {
		r, refused := f.inNoGroup(&c)
		return !refused, r.filter, r.reason
	}
	r, refused := f.first(&c, true)
	return !refused, r.filter, r.reason
}

// Admits is Fits without a reason: it allocates nothing, but for what expressions do.
func (f *Filter) Admits(c *Cluster) bool {
	if f.Grouped() {
		return slices.ContainsFunc(f.fallbacks, func(g *Filter) bool { return g.Admits(c) })
	}
	_, refused := f.first(c, false)
	return !refused
}

// Names of the clusters that the placement names; nil when it names none, so that any
// may fit.
func (f *Filter) Names() []string {
	if f.Grouped() {
		var all []string
		for _, g := range f.fallbacks {
			if g.names == nil {
				return nil
			}
			all = append(all, g.Names()...)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if f.names == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(f.names))
}

// refusal by one filter.
type refusal struct {
	filter, reason string
	// print of the selector that refuses, and its place; empty for filters that have
	// none.
	print string
	place int
	// reported: it rests on what the agent reports, so that it takes nothing away.
	reported bool
}

// first refusal of a cluster that does not hold the Bundle yet. Reasons are only made
// where they are to be said, and what the terms do not state is not asked.
func (f *Filter) first(c *Cluster, say bool) (r refusal, refused bool) {
	if r, refused = f.admitted(c, say); refused {
		return r, true
	}
	if f.bound != nil {
		if r, refused = f.inBounds(c); refused {
			return r, true
		}
	}
	if f.common.sets != nil {
		if r, refused = f.common.inSets(&c.ClusterView, say); refused {
			return r, true
		}
	}
	if r, refused = f.selectors.first(&c.ClusterView, say); refused {
		return r, true
	}
	if len(c.Taints) > 0 {
		if r, refused = f.tainted(c, true, say); refused {
			return r, true
		}
	}
	return f.served(c, say)
}

// served is the rest of first: the served APIs, and the expressions, which cost most.
func (f *Filter) served(c *Cluster, say bool) (r refusal, refused bool) {
	if len(f.apis) > 0 {
		if r, refused = f.serves(c, say); refused {
			return r, true
		}
	}
	if len(f.kinds) > 0 {
		if r, refused = f.serveKinds(c, say); refused {
			return r, true
		}
	}
	if f.common.celPrint != "" {
		if r, refused = f.common.expressed(&c.ClusterView, say); refused {
			return r, true
		}
	}
	if f.celPrint == "" {
		return refusal{}, false
	}
	return f.expressed(&c.ClusterView, say)
}

// refusals of a cluster that holds the Bundle, in the order of the filters: all but
// those of NoExecute taints.
func (f *Filter) refusals(c *Cluster) (out []refusal) {
	// What refuses no newcomer refuses nobody.
	if _, refused := f.first(c, false); !refused {
		return nil
	}
	add := func(r refusal, refused bool) {
		if refused {
			out = append(out, r)
		}
	}
	add(f.admitted(c, true))
	view := &c.ClusterView
	add(f.named(view))
	add(f.inBounds(c))
	add(f.common.inSets(view, true))
	add(f.inSets(view, true))
	add(f.selected(view))
	add(f.fielded(view, true))
	add(f.serves(c, true))
	add(f.serveKinds(c, true))
	add(f.common.expressed(view, true))
	add(f.expressed(view, true))
	add(f.tainted(c, false, true))
	return out
}

// reasonRemoval of a cluster that leaves the fleet.
const reasonRemoval = "the cluster is being removed from the fleet"

func (f *Filter) admitted(c *Cluster, say bool) (refusal, bool) {
	switch {
	case !c.Accepted:
		r := refusal{filter: FilterAccepted}
		if say {
			r.reason = "not accepted: `atoll accept " + c.Name + "` is missing"
		}
		return r, true
	case c.Deleting:
		return refusal{filter: FilterDeleting, reason: "the Cluster is being deleted"}, true
	case c.Held:
		r := refusal{filter: FilterRemoval}
		if say {
			r.reason = reasonRemoval + "; what runs there stays until `atoll confirm cluster/" + c.Name + "`"
		}
		return r, true
	case c.Removal != "":
		return refusal{filter: FilterRemoval, reason: reasonRemoval}, true
	}
	return refusal{}, false
}

// inBounds tells whether the namespace may use the cluster.
func (f *Filter) inBounds(c *Cluster) (refusal, bool) {
	if f.bound == nil || anyOf(f.bound, c.Sets) {
		return refusal{}, false
	}
	return refusal{filter: FilterBound, reason: f.boundReason}, true
}

func anyOf(m map[string]bool, names []string) bool {
	for _, n := range names {
		if m[n] {
			return true
		}
	}
	return false
}

// tainted checks NoSchedule taints, and for clusters that do not hold the Bundle
// yet also NoExecute ones: what would be evicted is not placed, so a toleration
// for some seconds admits nothing new.
func (f *Filter) tainted(c *Cluster, newcomer, say bool) (refusal, bool) {
	for i := range c.Taints {
		t := &c.Taints[i]
		if t.Effect == corev1.TaintEffectNoExecute && !newcomer || t.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		tol := f.tolerates(t)
		if tol != nil && (t.Effect != corev1.TaintEffectNoExecute || tol.TolerationSeconds == nil) {
			continue
		}
		r := refusal{filter: FilterTaints}
		switch {
		case say && tol == nil:
			r.reason = fmt.Sprintf("taint %s is not tolerated", name(t))
		case say:
			r.reason = fmt.Sprintf("taint %s is tolerated for %d s only", name(t), *tol.TolerationSeconds)
		}
		return r, true
	}
	return refusal{}, false
}

// avoided counts the PreferNoSchedule taints of the cluster that are not tolerated.
func (f *Filter) avoided(c *Cluster) (n int) {
	for i := range c.Taints {
		if t := &c.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && f.tolerates(t) == nil {
			n++
		}
	}
	return n
}

// eviction tells when NoExecute taints take out what runs; zero: never.
func (f *Filter) eviction(c *Cluster, now time.Time) (at time.Time, reason string) {
	for i := range c.Taints {
		t := &c.Taints[i]
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		end, why := now, fmt.Sprintf("taint %s is not tolerated", name(t))
		if tol := f.tolerates(t); tol != nil {
			if tol.TolerationSeconds == nil {
				continue
			}
			why = fmt.Sprintf("taint %s was tolerated for %d s", name(t), *tol.TolerationSeconds)
			if s := *tol.TolerationSeconds; s > 0 {
				if t.TimeAdded == nil {
					continue
				}
				end = t.TimeAdded.Add(time.Duration(min(s, maxSeconds)) * time.Second)
			}
		}
		if at.IsZero() || end.Before(at) {
			at, reason = end, why
		}
	}
	return at, reason
}

// maxSeconds keeps a duration from overflowing: 100 years.
const maxSeconds = 100 * 365 * 24 * 3600

// tolerates gives the first toleration that covers the taint, nil if none does.
func (f *Filter) tolerates(t *v1alpha1.Taint) *corev1.Toleration {
	for i := range f.tolerations {
		if covers(&f.tolerations[i], t) {
			return &f.tolerations[i]
		}
	}
	return nil
}

func covers(tol *corev1.Toleration, t *v1alpha1.Taint) bool {
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

func name(t *v1alpha1.Taint) string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}
