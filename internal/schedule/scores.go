package schedule

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// fullScore is the best score of a cluster; people see it as 1000.
const fullScore = 1_000_000

// ResourceAmount is one resource of a cluster, in thousandths of its unit.
type ResourceAmount struct {
	Name corev1.ResourceName
	// Total that ready nodes can hold, and Free of it; Free may be less than 0.
	Total, Free int64
}

// ResourceAmountsOf returns what a Cluster reported, by name.
func ResourceAmountsOf(r *v1alpha1.ResourceSummary) []ResourceAmount {
	if len(r.Allocatable) == 0 {
		return nil
	}
	out := make([]ResourceAmount, 0, len(r.Allocatable))
	for name, q := range r.Allocatable {
		total, asked := toMilli(q.AsApproximateFloat64()), int64(0)
		if q, ok := r.Requested[name]; ok {
			asked = toMilli(q.AsApproximateFloat64())
		}
		out = append(out, ResourceAmount{Name: name, Total: total, Free: total - asked})
	}
	slices.SortFunc(out, func(a, b ResourceAmount) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func toMilli(units float64) int64 { return int64(min(max(units, -1e12), 1e15) * 1000) }

func (c *Cluster) findResource(name corev1.ResourceName) (ResourceAmount, bool) {
	for i := range c.Resources {
		if c.Resources[i].Name == name {
			return c.Resources[i], true
		}
	}
	return ResourceAmount{}, false
}

// placementScores are the compiled scores of a placement.
type placementScores struct {
	rules        []scoreRule
	totalWeight  int64
	needsPodLoad bool // reads how many pods a cluster was assigned
}

// scoreRule is one score that a placement states.
type scoreRule struct {
	*scoreKind
	index      int // among the rules of the placement
	weight     int64
	resource   corev1.ResourceName
	fullAmount int64 // in thousandths; 0: what the cluster has in all
	property   string
	measure    string
	from, to   float64
	bundles    *v1alpha1.NearBundles
	preferred  *ClusterTarget // nil but for ClusterAffinity
	preference string         // describes preferred
}

func compileScores(list []v1alpha1.Score) placementScores {
	if len(list) == 0 {
		list = []v1alpha1.Score{{Name: v1alpha1.ScoreBalance}}
	}
	s := placementScores{}
	for _, e := range list {
		p := scoreRule{scoreKind: findScoreKind(e.Name), index: len(s.rules), weight: max(1, int64(e.Weight)), resource: corev1.ResourceName(e.Resource), bundles: e.Bundles, measure: e.Measure}
		if e.Full != nil {
			p.fullAmount = toMilli(e.Full.AsApproximateFloat64())
		}
		if e.Property != nil {
			p.property, p.from, p.to = e.Property.Name, e.Property.From.AsApproximateFloat64(), e.Property.To.AsApproximateFloat64()
		}
		if e.ClusterAffinity != nil {
			p.preferred, p.preference = CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: *e.ClusterAffinity}), formatAffinity(e.ClusterAffinity)
		}
		s.rules = append(s.rules, p)
		s.totalWeight += p.weight
		s.needsPodLoad = s.needsPodLoad || p.needsPodLoad
	}
	return s
}

// clusterFacts are inputs of scores that are not part of the cluster.
type clusterFacts struct {
	othersPods    int64 // pods that it was assigned, but for this Bundle's own
	ownPods       int64 // of this Bundle
	runsBundle    bool  // this Bundle runs there
	avoidedTaints int   // PreferNoSchedule taints that are not tolerated
	fleet         FleetFacts
	// nearby is, by the index of the rule, where other Bundles are; nil: every rule that
	// needs it scores withoutNearby.
	nearby        []nearbyGroups
	withoutNearby int64
}

// podLoad returns the pods that others put on the cluster, and the Bundle's own. Own pods
// are no reason to be elsewhere: they would be the same there.
func (in *Input) podLoad(c *Cluster, row *atoll.RowSpec) (others, own int64) {
	if in.Facts == nil {
		return 0, 0
	}
	return subtractOwnPods(in.Facts.AssignedPods(c), row)
}

// podLoadAt is the load of one of the input's clusters.
func (in *Input) podLoadAt(at int, row *atoll.RowSpec) (others, own int64) {
	if in.PodLoads == nil {
		return in.podLoad(&in.Clusters[at], row)
	}
	return subtractOwnPods(in.PodLoads[at], row)
}

// rowInLoad returns the row of a cluster whose pods are in the cluster's load: the one that it holds, or a Pending
// one that a decision takes for none.
func (in *Input) rowInLoad(c *Cluster, held *atoll.RowSpec) *atoll.RowSpec {
	if r, stored := in.Rows[c.Name]; held == nil && stored && r.UID == c.UID && r.Phase == atoll.RowPending {
		return &r
	}
	return held
}

// subtractOwnPods splits a cluster's load into the pods of others and of the Bundle's row
// there.
func subtractOwnPods(others int64, row *atoll.RowSpec) (rest, own int64) {
	if row != nil && row.Phase.IsChosen() {
		own = max(row.RequestedPods, 1)
	}
	return max(others-own, 0), own
}

// avoidedTaintPenalty is what each PreferNoSchedule taint that is not tolerated takes away.
const avoidedTaintPenalty = fullScore / 5

// scoreCluster scores a cluster. The score depends on this cluster alone.
func (s *placementScores) scoreCluster(c *Cluster, f clusterFacts) int64 {
	sum := int64(0)
	for i := range s.rules {
		sum += s.rules[i].weight * s.rules[i].points(&s.rules[i], c, f)
	}
	return sum/s.totalWeight - avoidedTaintPenalty*int64(f.avoidedTaints)
}

// nearbyGroups counts, by group of clusters, the other Bundles there.
type nearbyGroups struct {
	groupBy v1alpha1.SpreadConstraint
	groups  map[string]int64
	bundles int64
	// groupsOfBundles are the groups of each Bundle, where a cluster may be in several.
	groupsOfBundles []map[string]bool
}

// scoreBundleShare scores the share of the other Bundles that are in a group of the cluster.
func (n *nearbyGroups) scoreBundleShare(c *Cluster) int64 {
	if n.bundles == 0 {
		return 0
	}
	return fullScore * n.countBundlesNear(c) / n.bundles
}

// countBundlesNear counts the Bundles that are in a group of the cluster.
func (n *nearbyGroups) countBundlesNear(c *Cluster) (near int64) {
	var one [1]string
	groups := spreadGroupsOf(&n.groupBy, c, &one)
	switch len(groups) {
	case 0:
		return 0
	case 1:
		return n.groups[groups[0]]
	}
	for _, of := range n.groupsOfBundles {
		if slices.ContainsFunc(groups, func(g string) bool { return of[g] }) {
			near++
		}
	}
	return near
}

// countNearbyGroups counts the Bundles that the scores select, by index of the rule; nil
// where no score needs them.
func (s *placementScores) countNearbyGroups(nearby [][]BundleClusters) []nearbyGroups {
	var out []nearbyGroups
	for i := range s.rules {
		b := s.rules[i].bundles
		if b == nil {
			continue
		}
		if out == nil {
			out = make([]nearbyGroups, len(s.rules))
		}
		n := &out[i]
		n.groupBy.SpreadByField, n.groups = cmp.Or(b.Within, v1alpha1.SpreadByCluster), map[string]int64{}
		if i >= len(nearby) {
			continue
		}
		for _, clusters := range nearby[i] {
			mine := map[string]bool{}
			var one [1]string
			for _, view := range clusters {
				for _, g := range spreadGroupsOf(&n.groupBy, &Cluster{ClusterView: view}, &one) {
					if !mine[g] {
						mine[g] = true
						n.groups[g]++
					}
				}
			}
			if n.bundles++; n.groupBy.SpreadByField == v1alpha1.SpreadByZone {
				n.groupsOfBundles = append(n.groupsOfBundles, mine)
			}
		}
	}
	return out
}

// defaultPods is the capacity of an ordinary node.
const defaultPods = 110

// podCapacityOf returns how many pods a cluster's ready nodes can hold; without a report, as many
// as one ordinary node.
func podCapacityOf(c *Cluster) int64 {
	if pods, ok := c.findResource(corev1.ResourcePods); ok && pods.Total >= 1000 {
		return pods.Total / 1000
	}
	return defaultPods
}
