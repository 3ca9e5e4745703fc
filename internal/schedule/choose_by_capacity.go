package schedule

import (
	"math/bits"

	"atoll.dev/atoll/internal/quantity"
)

// countDividedReplicas returns the replicas of the workloads that are divided: so many replicas need free
// capacity.
func countDividedReplicas(workloads []Workload) (sum int64) {
	for _, w := range workloads {
		if !w.needsOneCluster() {
			sum = quantity.AddCapped(sum, w.Replicas)
		}
	}
	return sum
}

// needsCapacity reports whether the free capacity of the chosen clusters matters.
func (p *candidatePool) needsCapacity() bool {
	return (p.input.usesReportedCapacity() || p.hasStatedCapacity) && countDividedReplicas(p.input.Workloads) > 0
}

// usesReportedCapacity reports whether the capacity that agents report counts.
func (in *Input) usesReportedCapacity() bool {
	return in.UseFreeCapacity && methodOf(in.Placement.ReplicaScheduling) != ByWeight
}

// countFittingReplicas returns how many of the needed replicas a cluster takes: by the
// capacity that its agent reports, where this counts, and by the capacity that it states. Not
// known: the agent's report counts, and there is none.
func (in *Input) countFittingReplicas(c *Cluster, need int64) (n int64, known bool) {
	n, known = need, true
	if in.usesReportedCapacity() {
		var reported int64
		if reported, known = in.resolveFacts().FreeReplicas(c); known {
			n = min(n, max(reported, 0))
		}
	}
	if len(c.Capacity) > 0 && in.Demand != nil {
		n = min(n, in.countReplicasWithinStatedCapacity(c))
	}
	return n, known
}

// countKnownFitting is countFittingReplicas, and 0 where it is not known.
func (in *Input) countKnownFitting(c *Cluster, need int64) int64 {
	if n, known := in.countFittingReplicas(c, need); known {
		return n
	}
	return 0
}

// maxCapacityWeightings bounds how many weights of capacity against scores are tried before
// capacity alone counts.
const maxCapacityWeightings = 12

// chooseWithCapacity chooses again where the chosen clusters lack free capacity. It uses the
// least weight of capacity against the scores that gives enough. If none does, capacity
// alone decides, which gives the most possible. A cluster of unknown capacity counts as full
// where replicas are divided by capacity.
func (p *candidatePool) chooseWithCapacity(first []int32, short []int) ([]int32, []int) {
	need := countDividedReplicas(p.input.Workloads)
	if !p.needsCapacity() || len(short) > 0 || len(first) == len(p.options) {
		return first, short
	}
	free, scores := make([]int64, len(p.options)), make([]int64, len(p.options))
	for i := range p.options {
		scores[i] = p.options[i].score
		free[i] = p.countReplicasFittingOption(&p.options[i], need)
	}
	weighed := false
	defer func() {
		for i := range p.options {
			if weighed && !p.input.SkipExplanations {
				p.capacityScores = append(p.capacityScores, p.options[i].score)
			}
			p.options[i].score = scores[i]
		}
	}()
	for step := 0; !hasEnoughFreeCapacity(first, free, need); step++ {
		weighed = true
		for i := range p.options {
			hi, lo := bits.Mul64(uint64(free[i]), fullScore)
			part, _ := bits.Div64(hi, lo, uint64(need)) // of all that is needed
			if p.options[i].score = scores[i] + int64(part<<step)/16; step == maxCapacityWeightings {
				p.options[i].score = int64(part)<<22 + scores[i]
			}
		}
		if first, short = p.problem.chooseOptions(); step == maxCapacityWeightings {
			break
		}
	}
	return first, short
}

// countReplicasFittingOption is countKnownFitting of an option, and 0 of a disconnected newcomer.
func (p *candidatePool) countReplicasFittingOption(o *candidateOption, need int64) int64 {
	if o.penalty > 0 {
		return 0
	}
	return p.input.countKnownFitting(&p.input.Clusters[o.clusterIndex], need)
}

// hasEnoughFreeCapacity reports whether the chosen options have the free capacity that is needed.
func hasEnoughFreeCapacity(chosen []int32, free []int64, need int64) bool {
	sum := int64(0)
	for _, i := range chosen {
		sum += min(free[i], need-sum)
	}
	return sum == need
}
