package schedule

import (
	"math/bits"

	"atoll.dev/atoll/internal/atoll"
)

// demand of the workloads that are divided: so many replicas need room.
func demand(workloads []Workload) (sum int64) {
	for _, w := range workloads {
		if !w.stateful() {
			sum = atoll.Plus(sum, w.Replicas)
		}
	}
	return sum
}

// needsRoom tells whether it matters how much room is chosen.
func (p *pool) needsRoom() bool { return (p.byRoom() || p.bounded) && demand(p.in.Workloads) > 0 }

// byRoom: the room that agents report counts.
func (p *pool) byRoom() bool {
	return p.in.Fits != nil && methodOf(p.in.Placement.ReplicaScheduling) != ByWeight
}

// fits tells how many of the replicas that need room a cluster takes: by what its agent
// reports, where that counts, and by the capacity that it states.
func (p *pool) fits(c *Cluster, need int64) int64 {
	n := need
	if p.byRoom() {
		reported, known := p.in.Fits(c)
		if n = min(n, max(reported, 0)); !known {
			n = 0
		}
	}
	if len(c.Capacity) > 0 && p.in.Demand != nil {
		n = min(n, p.in.spare(c))
	}
	return n
}

// weighings of room against scores that are tried before room alone counts.
const weighings = 12

// roomier chooses anew where what was chosen has not room enough: with the least weight of
// room beside the scores that gives enough, and where none does, by room alone, which gives
// the most that can be had. A cluster whose room nobody knows counts as full where
// replicas are divided by room.
func (p *pool) roomier(first []int32, short []int) ([]int32, []int) {
	need := demand(p.in.Workloads)
	if !p.needsRoom() || len(short) > 0 || len(first) == len(p.options) {
		return first, short
	}
	room, scores := make([]int64, len(p.options)), make([]int64, len(p.options))
	for i := range p.options {
		scores[i] = p.options[i].score
		room[i] = p.fits(&p.in.Clusters[p.options[i].at], need)
	}
	weighed := false
	defer func() {
		for i := range p.options {
			if weighed && !p.in.Terse {
				p.weighed = append(p.weighed, p.options[i].score)
			}
			p.options[i].score = scores[i]
		}
	}()
	enough := func(chosen []int32) bool {
		sum := int64(0)
		for _, i := range chosen {
			sum += min(room[i], need-sum)
		}
		return sum == need
	}
	for step := 0; !enough(first); step++ {
		weighed = true
		for i := range p.options {
			hi, lo := bits.Mul64(uint64(room[i]), fullScore)
			part, _ := bits.Div64(hi, lo, uint64(need)) // of all that is needed
			if p.options[i].score = scores[i] + int64(part<<step)/16; step == weighings {
				p.options[i].score = int64(part)<<22 + scores[i]
			}
		}
		if first, short = p.prob.solve(); step == weighings {
			break
		}
	}
	return first, short
}
