package schedule

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
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
	load   bool // asks how many Bundles a cluster has
}

type scorePart struct {
	name     v1alpha1.ScoreName
	weight   int64
	resource corev1.ResourceName
	full     int64 // in thousandths; 0: what the cluster has in all
}

func compileScores(list []v1alpha1.Score) scorer {
	if len(list) == 0 {
		list = []v1alpha1.Score{{Name: v1alpha1.ScoreBalance}}
	}
	s := scorer{}
	for _, e := range list {
		p := scorePart{name: e.Name, weight: max(1, int64(e.Weight)), resource: corev1.ResourceName(e.Resource)}
		if e.Full != nil {
			p.full = milli(e.Full.AsApproximateFloat64())
		}
		s.parts = append(s.parts, p)
		s.weight += p.weight
		s.load = s.load || e.Name == v1alpha1.ScoreBalance
	}
	return s
}

// score of a cluster that has so many Bundles. It depends on that cluster alone.
func (s *scorer) score(c *Cluster, load int64) int64 {
	sum := int64(0)
	for i := range s.parts {
		p := &s.parts[i]
		switch p.name {
		case v1alpha1.ScoreBalance:
			sum += p.weight * balance(c, load)
		case v1alpha1.ScoreResourceAvailable:
			sum += p.weight * p.available(c)
		}
	}
	return sum / s.weight
}

// defaultPods is what an ordinary node holds.
const defaultPods = 110

// balance is 1 for a cluster without Bundles, and 1/2 where there are as many as it can
// hold pods.
func balance(c *Cluster, load int64) int64 {
	size := int64(defaultPods)
	if pods, ok := c.amount(corev1.ResourcePods); ok && pods.Total >= 1000 {
		size = pods.Total / 1000
	}
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
