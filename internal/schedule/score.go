package schedule

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// fullScore is the best that a cluster can be; what people see as 1000.
const fullScore = 1_000_000

// Amount of one resource of a cluster, in thousandths of its unit.
type Amount struct {
	Name corev1.ResourceName
	// Total that ready nodes can hold, and Free of it; Free may be less than 0.
	Total, Free int64
}

// AmountsOf what a Cluster reported, by name.
func AmountsOf(r *v1alpha1.ResourceSummary) []Amount {
	if len(r.Allocatable) == 0 {
		return nil
	}
	out := make([]Amount, 0, len(r.Allocatable))
	for name, q := range r.Allocatable {
		total, asked := milli(q.AsApproximateFloat64()), int64(0)
		if q, ok := r.Requested[name]; ok {
			asked = milli(q.AsApproximateFloat64())
		}
		out = append(out, Amount{Name: name, Total: total, Free: total - asked})
	}
	slices.SortFunc(out, func(a, b Amount) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func milli(units float64) int64 { return int64(min(max(units, -1e12), 1e15) * 1000) }

func (c *Cluster) amount(name corev1.ResourceName) (Amount, bool) {
	for i := range c.Resources {
		if c.Resources[i].Name == name {
			return c.Resources[i], true
		}
	}
	return Amount{}, false
}

// scorer is the scores of a placement made ready.
type scorer struct {
	parts  []scorePart
	weight int64
	load   bool // asks how many pods a cluster was assigned
}

type scorePart struct {
	name     v1alpha1.ScoreName
	weight   int64
	resource corev1.ResourceName
	full     int64 // in thousandths; 0: what the cluster has in all
	property string
	measure  string
	from, to float64
	bundles  *v1alpha1.NearBundles
}

func compileScores(list []v1alpha1.Score) scorer {
	if len(list) == 0 {
		list = []v1alpha1.Score{{Name: v1alpha1.ScoreBalance}}
	}
	s := scorer{}
	for _, e := range list {
		p := scorePart{name: e.Name, weight: max(1, int64(e.Weight)), resource: corev1.ResourceName(e.Resource), bundles: e.Bundles, measure: e.Measure}
		if e.Full != nil {
			p.full = milli(e.Full.AsApproximateFloat64())
		}
		if e.Property != nil {
			p.property, p.from, p.to = e.Property.Name, e.Property.From.AsApproximateFloat64(), e.Property.To.AsApproximateFloat64()
		}
		s.parts = append(s.parts, p)
		s.weight += p.weight
		s.load = s.load || e.Name == v1alpha1.ScoreBalance
	}
	return s
}

// facts about a cluster that are no part of it.
type facts struct {
	load  int64 // pods that it was assigned, but for this Bundle's own
	own   int64 // of this Bundle
	holds bool  // this Bundle runs there
	avoid int   // PreferNoSchedule taints that are not tolerated
	rated func(c *Cluster, measure string) int64
	// near tells, by the part of the scores, where other Bundles are; nil: every part
	// that asks scores anywhere.
	near     []neighbours
	anywhere int64
}

// load that others put on the cluster: what the Bundle brings itself would be the same
// wherever it is, and is no reason to be elsewhere. own is what of it is there now.
func (in *Input) load(c *Cluster, row *atoll.RowSpec) (others, own int64) {
	if in.Load == nil {
		return 0, 0
	}
	return beside(in.Load(c), row)
}

// loadAt is the load of one of the input's clusters.
func (in *Input) loadAt(at int, row *atoll.RowSpec) (others, own int64) {
	if in.Loads == nil {
		return in.load(&in.Clusters[at], row)
	}
	return beside(in.Loads[at], row)
}

// beside a row of the Bundle there is the rest of a cluster's load.
func beside(others int64, row *atoll.RowSpec) (rest, own int64) {
	if row != nil && (row.Phase == atoll.RowActive || row.Phase == "") {
		own = max(row.Pods, 1)
	}
	return max(others-own, 0), own
}

// avoidance is what each PreferNoSchedule taint that is not tolerated takes away.
const avoidance = fullScore / 5

// score of a cluster. It depends on that cluster alone.
func (s *scorer) score(c *Cluster, f facts) int64 {
	sum := int64(0)
	for i := range s.parts {
		sum += s.parts[i].weight * s.part(i, c, &f)
	}
	return sum/s.weight - avoidance*int64(f.avoid)
}

// part of the scores that a cluster has, of fullScore.
func (s *scorer) part(i int, c *Cluster, f *facts) (points int64) {
	switch p := &s.parts[i]; p.name {
	case v1alpha1.ScoreBalance:
		points = balance(c, f.load)
	case v1alpha1.ScoreSteady:
		if f.holds {
			points = fullScore
		}
	case v1alpha1.ScoreResourceAvailable:
		points = p.available(c)
	case v1alpha1.ScoreProperty:
		points = p.number(c)
	case v1alpha1.ScoreCluster:
		if f.rated != nil {
			points = min(max(f.rated(c, p.measure), 0), 1000) * (fullScore / 1000)
		}
	case v1alpha1.ScoreAffinity, v1alpha1.ScoreAntiAffinity:
		if f.near == nil {
			points = f.anywhere
		} else if points = f.near[i].share(c); p.name == v1alpha1.ScoreAntiAffinity {
			points = fullScore - points
		}
	}
	return points
}

// neighbours of a Bundle: how many other ones are in each group of clusters.
type neighbours struct {
	within  v1alpha1.SpreadConstraint
	groups  map[string]int64
	bundles int64
}

// share of the other Bundles that are in the cluster's group.
func (n *neighbours) share(c *Cluster) int64 {
	if n.bundles == 0 {
		return 0
	}
	if g := groupOf(&n.within, c); g != "" {
		return fullScore * n.groups[g] / n.bundles
	}
	return 0
}

// neighbours that the scores ask for, by the part that asks; nil where none does.
func (s *scorer) neighbours(near func(*v1alpha1.NearBundles) [][]atoll.ClusterView) []neighbours {
	var out []neighbours
	for i := range s.parts {
		b := s.parts[i].bundles
		if b == nil {
			continue
		}
		if out == nil {
			out = make([]neighbours, len(s.parts))
		}
		n := &out[i]
		n.within.SpreadByField, n.groups = cmp.Or(b.Within, v1alpha1.SpreadByCluster), map[string]int64{}
		if near == nil {
			continue
		}
		for _, clusters := range near(b) {
			mine := map[string]bool{}
			for _, view := range clusters {
				if g := groupOf(&n.within, &Cluster{ClusterView: view}); g != "" && !mine[g] {
					mine[g] = true
					n.groups[g]++
				}
			}
			n.bundles++
		}
	}
	return out
}

// number of a property, between where it scores nothing and where all.
func (p *scorePart) number(c *Cluster) int64 {
	q, err := atoll.ParseQuantity(c.Properties[p.property])
	if err != nil || p.from == p.to {
		return 0
	}
	at := (q.AsApproximateFloat64() - p.from) / (p.to - p.from)
	return int64(fullScore * min(max(at, 0), 1))
}

// defaultPods is what an ordinary node holds.
const defaultPods = 110

// podsOf a cluster that its ready nodes can hold, or as many as one ordinary node.
func podsOf(c *Cluster) int64 {
	if pods, ok := c.amount(corev1.ResourcePods); ok && pods.Total >= 1000 {
		return pods.Total / 1000
	}
	return defaultPods
}

// balance is 1 for a cluster that was assigned nothing, and 1/2 where it was as many pods
// as it can hold.
func balance(c *Cluster, load int64) int64 {
	size := podsOf(c)
	return int64(fullScore * (float64(size) / float64(size+max(0, load))))
}

func (p *scorePart) available(c *Cluster) int64 {
	a, ok := c.amount(p.resource)
	if !ok || a.Free <= 0 {
		return 0
	}
	full := cmp.Or(p.full, a.Total)
	return int64(math.Min(1, float64(a.Free)/float64(max(1, full))) * fullScore)
}
