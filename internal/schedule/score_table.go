package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/quantity"
)

// scoreTable lists the scores that placements can state. One entry adds a score.
var scoreTable = []scoreKind{
	{name: v1alpha1.ScoreBalance, needsPodLoad: true, points: (*scoreRule).scoreBalance, describe: (*scoreRule).describeBalance},
	{name: v1alpha1.ScoreSteady, points: (*scoreRule).scoreSteady},
	{name: v1alpha1.ScoreResourceAvailable, points: (*scoreRule).scoreAvailable, describe: (*scoreRule).describeAvailable},
	{name: v1alpha1.ScoreProperty, points: (*scoreRule).scoreProperty, describe: (*scoreRule).describeProperty},
	{name: v1alpha1.ScoreCluster, points: (*scoreRule).scoreRating},
	{name: v1alpha1.ScoreAffinity, points: (*scoreRule).scoreAffinity},
	{name: v1alpha1.ScoreAntiAffinity, points: (*scoreRule).scoreAntiAffinity},
	{name: v1alpha1.ScoreClusterAffinity, points: (*scoreRule).scorePreferred, describe: (*scoreRule).describePreferred},
}

// scoreKind is an entry of the table.
type scoreKind struct {
	name v1alpha1.ScoreName
	// needsPodLoad: it reads how many pods a cluster was assigned.
	needsPodLoad bool
	// points that a cluster has, from 0 to fullScore.
	points func(*scoreRule, *Cluster, clusterFacts) int64
	// describe returns the inputs of the points, for people; nil where the name suffices.
	describe func(*scoreRule, *Cluster, clusterFacts) string
}

// findScoreKind finds an entry by name. Admission keeps other names out, and they score
// nothing.
func findScoreKind(name v1alpha1.ScoreName) *scoreKind {
	i := slices.IndexFunc(scoreTable, func(k scoreKind) bool { return k.name == name })
	if i < 0 {
		return &scoreKind{name: name, points: func(*scoreRule, *Cluster, clusterFacts) int64 { return 0 }}
	}
	return &scoreTable[i]
}

// scoreBalance is full for a cluster that was assigned nothing, and half where it was as many
// pods as it can hold.
func (p *scoreRule) scoreBalance(c *Cluster, f clusterFacts) int64 {
	size := podCapacityOf(c)
	return int64(fullScore * (float64(size) / float64(size+max(0, f.othersPods))))
}

func (p *scoreRule) describeBalance(c *Cluster, f clusterFacts) string {
	if f.ownPods > 0 {
		return fmt.Sprintf("%d pods of others assigned, %d fit", f.othersPods, podCapacityOf(c))
	}
	return fmt.Sprintf("%d pods assigned, %d fit", f.othersPods, podCapacityOf(c))
}

func (p *scoreRule) scoreSteady(_ *Cluster, f clusterFacts) int64 {
	if f.runsBundle {
		return fullScore
	}
	return 0
}

func (p *scoreRule) scoreAvailable(c *Cluster, _ clusterFacts) int64 {
	a, ok := c.findResource(p.resource)
	if !ok || a.Free <= 0 {
		return 0
	}
	full := cmp.Or(p.fullAmount, a.Total)
	return int64(math.Min(1, float64(a.Free)/float64(max(1, full))) * fullScore)
}

func (p *scoreRule) describeAvailable(c *Cluster, _ clusterFacts) string {
	a, ok := c.findResource(p.resource)
	if !ok {
		return "not reported"
	}
	return fmt.Sprintf("%s of %s free", p.formatAmount(a.Free), p.formatAmount(cmp.Or(p.fullAmount, a.Total)))
}

// formatAmount formats an amount of the rule's resource: memory in Gi, all else in its unit.
func (p *scoreRule) formatAmount(milli int64) string {
	units := float64(milli) / 1000
	if p.resource == corev1.ResourceMemory || p.resource == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(p.resource), corev1.ResourceHugePagesPrefix) {
		return strconv.FormatFloat(math.Round(units/(1<<30)*10)/10, 'f', -1, 64) + "Gi"
	}
	return strconv.FormatFloat(math.Round(units*10)/10, 'f', -1, 64)
}

// scoreProperty scores the number of a property between the number that scores nothing and
// the number that scores all.
func (p *scoreRule) scoreProperty(c *Cluster, _ clusterFacts) int64 {
	q, err := quantity.Parse(c.Properties[p.property])
	if err != nil || p.from == p.to {
		return 0
	}
	at := (q.AsApproximateFloat64() - p.from) / (p.to - p.from)
	return int64(fullScore * min(max(at, 0), 1))
}

func (p *scoreRule) describeProperty(c *Cluster, _ clusterFacts) string {
	if value, ok := c.Properties[p.property]; ok {
		return value
	}
	return "no such property that may be read"
}

func (p *scoreRule) scoreRating(c *Cluster, f clusterFacts) int64 {
	return min(max(f.fleet.RatingOf(c, p.measure), 0), 1000) * (fullScore / 1000)
}

func (p *scoreRule) scoreAffinity(c *Cluster, f clusterFacts) int64 {
	if f.nearby == nil {
		return f.withoutNearby
	}
	return f.nearby[p.index].scoreBundleShare(c)
}

func (p *scoreRule) scoreAntiAffinity(c *Cluster, f clusterFacts) int64 {
	if f.nearby == nil {
		return f.withoutNearby
	}
	return fullScore - f.nearby[p.index].scoreBundleShare(c)
}

// scorePreferred is full for a cluster that the affinity selects. Without an affinity, which admission keeps out, it
// is full for each cluster.
func (p *scoreRule) scorePreferred(c *Cluster, _ clusterFacts) int64 {
	if p.preferred == nil || p.preferred.MatchesCluster(&c.ClusterView) {
		return fullScore
	}
	return 0
}

func (p *scoreRule) describePreferred(c *Cluster, f clusterFacts) string {
	if p.scorePreferred(c, f) == 0 {
		return "not selected"
	}
	return "selected"
}

// formatAffinity formats what an affinity selects by, for people.
func formatAffinity(a *v1alpha1.ClusterAffinity) string {
	var parts []string
	if a.LabelSelector != nil {
		parts = append(parts, metav1.FormatLabelSelector(a.LabelSelector))
	}
	if a.FieldSelector != nil {
		for _, r := range a.FieldSelector.MatchExpressions {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator, strings.Join(r.Values, ","))))
		}
	}
	if len(a.ClusterNames) > 0 {
		parts = append(parts, "in "+formatNames(a.ClusterNames))
	}
	if len(a.ExcludeClusters) > 0 {
		parts = append(parts, "not in "+formatNames(a.ExcludeClusters))
	}
	return strings.Join(parts, ", ")
}
