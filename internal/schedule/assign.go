package schedule

import "slices"

// Share is what one cluster runs of the workloads.
type Share struct {
	// Replicas by item key.
	Replicas map[string]int64
	// Home lists items that are not divided and whose one place this cluster is,
	// also while they have 0 replicas. Sorted.
	Home []string
}

// Assign shares out the workloads: by cluster name, then by item key. held names
// clusters that keep what they run although they are to leave, since their removal
// waits for a confirmation.
//
// Kept and held clusters keep the share that they have, nothing new goes there;
// the others divide the rest by weight. Only where no placed cluster has a weight
// do Kept ones share again, and where there are none either everybody keeps what
// they have. A StatefulSet goes whole to one cluster and stays
// there as long as that cluster may have it, at 0 replicas too: its data is there.
//
// Without workloads the result is empty. Otherwise every Placed, Kept and held
// cluster of the decision has an entry, with 0 where it gets nothing.
func (d Decision) Assign(held map[string]bool) map[string]Share {
	if len(d.workloads) == 0 {
		return nil
	}
	var placed, kept []Weighted
	var pinned []string
	out := map[string]Share{}
	for _, v := range d.Verdicts {
		switch {
		case v.Outcome == Placed:
			placed = append(placed, Weighted{v.Cluster, v.Weight})
		case held[v.Cluster]:
			pinned = append(pinned, v.Cluster)
		case v.Outcome == Kept:
			kept = append(kept, Weighted{v.Cluster, max(v.Weight, 1)})
		default:
			continue
		}
		out[v.Cluster] = Share{Replicas: make(map[string]int64, len(d.workloads))}
	}
	free := slices.DeleteFunc(slices.Clone(placed), func(w Weighted) bool { return w.Weight <= 0 })
	if len(free) == 0 {
		free, kept = kept, nil
	}
	if len(free) == 0 {
		kept = placed
	}
	for _, w := range kept {
		pinned = append(pinned, w.Cluster)
	}
	for _, w := range d.workloads {
		key, total := w.Key.String(), max(w.Replicas, 0)
		if w.whole() {
			d.assignWhole(out, key, total, free, pinned)
			continue
		}
		shares := d.pin(key, total, pinned)
		rest := total
		for cluster, n := range shares {
			out[cluster].Replicas[key] = n
			rest -= n
		}
		div := Divide(rest, free, d.seed)
		for cluster := range out {
			if _, ok := shares[cluster]; !ok {
				out[cluster].Replicas[key] = div[cluster]
			}
		}
	}
	return out
}

// Workloads that are shared out.
func (d Decision) Workloads() []Workload { return d.workloads }

// pin gives pinned clusters what they have, as far as the total reaches.
func (d Decision) pin(key string, total int64, pinned []string) map[string]int64 {
	slices.SortFunc(pinned, d.byRank)
	shares := make(map[string]int64, len(pinned))
	for _, cluster := range pinned {
		n := min(max(d.rows[cluster].Assigned[key], 0), total)
		shares[cluster] = n
		total -= n
	}
	return shares
}

func (d Decision) byRank(a, b string) int {
	if ra, rb := rank(d.seed, a), rank(d.seed, b); ra != rb {
		if ra < rb {
			return -1
		}
		return 1
	}
	return 0
}

// assignWhole gives all to one cluster.
func (d Decision) assignWhole(out map[string]Share, key string, total int64, free []Weighted, pinned []string) {
	home := d.home(key, free, pinned)
	for cluster, share := range out {
		share.Replicas[key] = 0
		if cluster == home {
			share.Replicas[key] = total
			share.Home = slices.Sorted(slices.Values(append(share.Home, key)))
			out[cluster] = share
		}
	}
}

// home of a workload that is not divided: where it is at home, else who has the
// largest claim.
func (d Decision) home(key string, free []Weighted, pinned []string) string {
	var at []string
	for _, w := range free {
		at = append(at, w.Cluster)
	}
	for _, cluster := range slices.Concat(at, pinned) {
		if slices.Contains(d.rows[cluster].Home, key) {
			return cluster
		}
	}
	for cluster, n := range Divide(1, free, d.seed) {
		if n == 1 {
			return cluster
		}
	}
	return ""
}
