package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Input of one decision.
type Input struct {
	// Bundle UID: decides between clusters with equal claims.
	Bundle    string
	Placement v1alpha1.PlacementSpec
	// Filter is the Terms compiled, if the caller has it; nil: Schedule compiles the
	// placement alone.
	Filter    *Filter
	WhenUnfit v1alpha1.WhenUnfit
	// Clusters: all of the fleet, or at least all that fit or hold a row, but for
	// Elsewhere.
	Clusters []Cluster
	// Admitted says of each of Clusters, which are in the order of their names then, what
	// the filter's Admits does, where the caller knows that; nil: it is asked. Not for
	// placements of groups.
	Admitted []bool
	// Loads says of each of Clusters, which are in the order of their names then, what Load
	// would; nil: it is asked.
	Loads []int64
	// Elsewhere counts clusters that are not listed, and that fit and hold a row.
	Elsewhere int
	// Load tells how many pods a cluster was assigned, for the score Balance; nil: none.
	// It answers the same while Schedule runs.
	Load func(c *Cluster) int64 `json:"-"`
	// Near gives, for the scores Affinity and AntiAffinity, the clusters of each of the
	// Bundles that are asked for, this one never among them; nil: there are none.
	Near func(*v1alpha1.NearBundles) [][]atoll.ClusterView `json:"-"`
	// Fits tells how many replicas of the workloads a cluster has room for, those that it
	// runs of them included; false: nobody knows. Asked where replicas are divided by room
	// and not all that fit are chosen, or there are groups to fall back to; nil: nobody
	// knows of any.
	Fits func(c *Cluster) (replicas int64, known bool) `json:"-"`
	// Rated gives, for the score ClusterScore, how the cluster is rated by a measure, from
	// 0 to 1000; nil: 0.
	Rated func(c *Cluster, measure string) int64 `json:"-"`
	// Terse leaves out verdicts on clusters that do not fit and hold nothing.
	Terse bool
	// Workloads whose replicas are shared out: the items that the content marks as
	// divided. None under Duplicated.
	Workloads []Workload
	// Handed are shares that overrides set, by cluster name and item key.
	Handed map[string]map[string]int64
	// Demand of the content that is to be held; nil: the capacity that clusters state is
	// not looked at.
	Demand *Demand
	// Used tells, of a cluster that states its capacity, what other Bundles use there and
	// what this one does; nil: nothing. It answers the same while Schedule runs.
	Used func(c *Cluster) (others, own Use) `json:"-"`
	// Rows by cluster name.
	Rows map[string]atoll.RowSpec
	// Better is what the last decision said of it. NotBackBefore is when an earlier group
	// may be used again, however long it was well; zero: at any time.
	Better        Better
	NotBackBefore time.Time
	// Healthy tells of a cluster that fits whether it is in touch, for failback; nil:
	// all are. It answers the same while Schedule runs.
	Healthy func(c *Cluster) bool `json:"-"`
	Now     time.Time

	// crowded clusters fit in groups that were looked at, and have no capacity left.
	crowded []string
}

// admits tells whether the filter admits a cluster that holds no row.
func (in *Input) admits(f *Filter, at int) bool {
	if in.Admitted != nil {
		return in.Admitted[at]
	}
	return f.Admits(&in.Clusters[at])
}

// row that a cluster holds of the Bundle; nil: none, or one that is on its way out, or
// another cluster's of that name.
func (in *Input) row(c *Cluster) *atoll.RowSpec {
	r, has := in.Rows[c.Name]
	if !has || r.UID != c.UID || r.Phase == atoll.RowRemoving && !c.Deleting {
		return nil
	}
	return &r
}

// Outcome for one cluster.
type Outcome string

// The outcomes.
const (
	// Placed: the cluster fits and is to hold the Bundle.
	Placed Outcome = "Placed"
	// Kept: the cluster does not fit any more, and keeps what it runs.
	Kept Outcome = "Kept"
	// Leaves: the cluster holds the Bundle and is to lose it.
	Leaves Outcome = "Leaves"
	// Out: the cluster does not fit and holds nothing.
	Out Outcome = "Out"
	// Gone: there is a row, but the Cluster is deleted; nobody will act on it.
	Gone Outcome = "Gone"
)

// Verdict on one cluster.
type Verdict struct {
	Cluster string
	// UID of the Cluster; empty when there is none of that name.
	UID     string
	Outcome Outcome
	// Filter that refuses the cluster, and why; empty when it fits.
	Filter string
	Reason string
	// Word of the row's reason for Kept and Leaves: one of atoll.RowUnfit and so on.
	Word string
	// Orphan: the cluster leaves the fleet, and what it has stays there.
	Orphan bool
	// Placement fingerprint that the row is to remember.
	Placement string
	// EvictAt is when a NoExecute taint will take the Bundle out; zero: never.
	EvictAt time.Time
	// Weight in divisions, for Placed and Kept, and the bounds of shares.
	Weight int64
	Bounds Bounds
	// Group among the decision groups, for Placed and Kept; empty: in none.
	Group string
	// Anew: the row goes through a rebalance by this decision, so that its share is
	// divided from scratch.
	Anew bool
	// Score among the clusters that were chosen from, of 1,000,000, and what it is made of,
	// which a Terse decision does not say; both are empty where all that fit are taken.
	Score  int64
	Rating *Rating
	// Full says which bound of the cluster's stated capacity keeps the row at the revision
	// and the share that it has; empty: none does.
	Full string

	// row of that name, if there is one; holds: it is the cluster's, and not on its way
	// out. Both are told where something is divided. at is where the decision keeps the room
	// of the cluster.
	row   *atoll.RowSpec
	holds bool
	at    int32
}

// Decision about a Bundle. Read-only.
type Decision struct {
	// Verdicts on all clusters of the input and on all rows, by cluster name.
	Verdicts []Verdict
	// NoFit: no cluster fits, and that is not on purpose.
	NoFit bool
	// Unmet says which minimum of the spread cannot be had, so that nothing changes;
	// NoFit is set then too.
	Unmet string
	// Hungry: of clusters that come to fit, one may be chosen. Not said where all that
	// fit are.
	Hungry bool
	// Reserve names, where a Terse decision chose all that were wanted, the ReserveDepth
	// best of the others of each kind: as long as clusters do not change, a decision over
	// these and those that have rows chooses what one over all would, if it chooses no more
	// than ReserveDepth anew.
	Reserve []string
	// EvictAt is when the first eviction is due; zero: none is.
	EvictAt time.Time
	// LookAt is when a dwell ends that keeps a better place from being taken, or a hold
	// time that keeps an earlier group from being used again; zero: none does. Standing is
	// how scores stood where the Bundle may move; nil: it may not now.
	LookAt   time.Time
	Standing *Standing
	// Group of clusterAffinities that is in use; empty where there are none.
	Group string
	// Better group that is to be used again at BetterAt, if it stays well; the next Input
	// says it again. FailsBack: one will be, once it is well.
	Better    Better
	BetterAt  time.Time
	FailsBack bool
	// EarlierFull: one that comes before fits, and has not room for all replicas.
	EarlierFull bool
	// Choice tells how was chosen among the clusters that fit, and Groups of each of the
	// clusterAffinities why it is in use or not; nil where there are none, and in a Terse
	// decision.
	Choice *Choice
	Groups []AffinityGroup
	// Crowded names clusters whose stated capacity keeps the Bundle out, or its row from
	// changing: with more of it the decision may be another. In no order, some may be there
	// twice.
	Crowded []string

	seed       string
	scheduling v1alpha1.ReplicaScheduling
	workloads  []Workload
	// all rows that there are, those that are Removing and others' too.
	all map[string]atoll.RowSpec
	// room of clusters where it is known, nil where it is not, by their verdicts; nil: of
	// none.
	room []atoll.Room
	// handed are shares that overrides set, by cluster name and item key.
	handed map[string]map[string]int64
	// demand of the content, and the stated capacity of the clusters that are to hold it,
	// by name, of those that state any.
	demand *Demand
	stated map[string]stated
}

// Schedule decides.
func Schedule(in Input) Decision {
	f := in.Filter
	if f == nil {
		f = Compile(in.Placement)
	}
	if f.Grouped() {
		return f.decideGroups(in)
	}
	return f.decide(in)
}

// decide by a placement, or by one of its groups.
func (f *Filter) decide(in Input) Decision {
	d := Decision{seed: in.Bundle, scheduling: in.Placement.ReplicaScheduling, workloads: in.Workloads, handed: in.Handed, demand: in.Demand}
	if len(in.Workloads) > 0 {
		d.all = in.Rows
	}
	var among *pool
	if f.choice != nil {
		in.Clusters = inOrder(in.Clusters)
		among = newPool(f, &in)
	}
	weigh := weigher(in.Placement.ReplicaScheduling)
	// part of a cluster that is to hold the Bundle in what follows from that.
	part := func(v *Verdict, c *Cluster) {
		v.Weight, v.Bounds = weigh(c)
		v.Group = f.group(c)
		d.state(&in, v, c)
	}
	seen, placed := 0, in.Elsewhere
	d.Verdicts = make([]Verdict, 0, len(in.Rows)+1)
	for i := range in.Clusters {
		c := &in.Clusters[i]
		r, has := in.Rows[c.Name]
		var row *atoll.RowSpec
		if has {
			seen++
			if r.UID == c.UID && (r.Phase != atoll.RowRemoving || c.Deleting) {
				row = &r
			}
		}
		if in.Terse && !has && !in.admits(f, i) {
			continue
		}
		v := Verdict{Cluster: c.Name, UID: c.UID, Outcome: Placed, Placement: f.print}
		if has || !in.Terse {
			v = f.judge(c, row, in.WhenUnfit, in.Now)
		}
		if has && d.all != nil {
			kept := r // the others are not to be in the heap
			v.row, v.holds = &kept, row != nil
		}
		if d.admit(f, &in, c, row, &v); in.Terse && !has && v.Outcome == Out {
			continue
		}
		if among != nil && among.offer(i, row, &v, &d) {
			continue
		}
		if v.Outcome == Placed || v.Outcome == Kept {
			part(&v, c)
		}
		if v.Outcome == Placed && among == nil {
			placed++
		}
		if !v.EvictAt.IsZero() && (d.EvictAt.IsZero() || v.EvictAt.Before(d.EvictAt)) {
			d.EvictAt = v.EvictAt
		}
		d.Verdicts = append(d.Verdicts, v)
	}
	if among != nil {
		placed += d.choose(among, part)
	}
	if seen < len(in.Rows) {
		d.gone(in)
	}
	byCluster(d.Verdicts)
	for i := range d.Verdicts {
		d.Verdicts[i].at = int32(i)
	}
	if placed == 0 && !atoll.IsNowhere(in.Placement) {
		d.NoFit = true
		d.keepAll(part, in)
	}
	return d
}

// byCluster sorts verdicts. What came with a choice or with rows alone stands behind the
// others, which mostly are in order: it is put in among them.
func byCluster(vs []Verdict) {
	sorted := 1
	for sorted < len(vs) && vs[sorted-1].Cluster <= vs[sorted].Cluster {
		sorted++
	}
	if sorted >= len(vs) {
		return
	}
	late := slices.Clone(vs[sorted:])
	slices.SortFunc(late, func(a, b Verdict) int { return strings.Compare(a.Cluster, b.Cluster) })
	for at := len(vs) - 1; len(late) > 0; at-- {
		if last := len(late) - 1; sorted > 0 && vs[sorted-1].Cluster > late[last].Cluster {
			sorted--
			vs[at] = vs[sorted]
		} else {
			vs[at], late = late[last], late[:last]
		}
	}
}

// gone adds verdicts on rows whose clusters are not there.
func (d *Decision) gone(in Input) {
	there := make(map[string]bool, len(in.Clusters))
	for i := range in.Clusters {
		there[in.Clusters[i].Name] = true
	}
	for cluster := range in.Rows {
		if !there[cluster] {
			d.Verdicts = append(d.Verdicts, Verdict{
				Cluster: cluster, Outcome: Gone, Filter: FilterDeleting, Reason: "the Cluster does not exist any more",
			})
		}
	}
}

// keepAll turns Leaves into Kept: that nothing fits is more likely a slip than a
// wish.
func (d *Decision) keepAll(part func(*Verdict, *Cluster), in Input) {
	// That a cluster leaves the fleet is no slip.
	slips := func(v Verdict) bool { return v.Outcome == Leaves && v.Filter != FilterRemoval }
	if !slices.ContainsFunc(d.Verdicts, slips) {
		return
	}
	byName := make(map[string]*Cluster, len(in.Rows))
	for i := range in.Clusters {
		if _, has := in.Rows[in.Clusters[i].Name]; has {
			byName[in.Clusters[i].Name] = &in.Clusters[i]
		}
	}
	for i, v := range d.Verdicts {
		if slips(v) {
			v.Outcome, v.Word = Kept, atoll.RowNoClusterFits
			v.Placement = in.Rows[v.Cluster].Placement
			part(&v, byName[v.Cluster])
			d.Verdicts[i] = v
		}
	}
}

// Judge one cluster by itself, whatever others there are: as if all that fit were chosen,
// in whichever group. row is its row of the Bundle, nil if it has none; now decides on
// evictions.
func (f *Filter) Judge(c *Cluster, row *atoll.RowSpec, unfit v1alpha1.WhenUnfit, now time.Time) Verdict {
	if row != nil && (row.UID != c.UID || row.Phase == atoll.RowRemoving && !c.Deleting) {
		row = nil
	}
	if f.Grouped() {
		return f.judgeByHome(c, row, unfit, now)
	}
	return f.judge(c, row, unfit, now)
}

// judgeAlone judges one cluster as if there were no other group; row is what it holds of
// the Bundle, nil if nothing.
func (f *Filter) judgeAlone(c *Cluster, row *atoll.RowSpec, unfit v1alpha1.WhenUnfit, now time.Time) Verdict {
	v := Verdict{Cluster: c.Name, UID: c.UID}
	if row == nil {
		r, refused := f.first(c, true)
		if v.Outcome = Out; !refused {
			v.Outcome, v.Placement = Placed, f.print
		} else if f.term != "" {
			r = f.notInUse(c, r)
		}
		v.Filter, v.Reason = r.filter, r.reason
		v.Orphan = c.Removal == v1alpha1.ClusterOrphan
		return v
	}
	if c.Deleting {
		v.Outcome, v.Filter, v.Reason = Gone, FilterDeleting, "the Cluster is being deleted"
		return v
	}
	if c.Removal != "" && !c.Held {
		v.Outcome, v.Word, v.Filter, v.Reason = Leaves, atoll.RowClusterRemoved, FilterRemoval, reasonRemoval
		v.Orphan = c.Removal == v1alpha1.ClusterOrphan
		return v
	}
	rs := f.refusals(c)
	for _, r := range rs {
		if edited(r, *row) {
			v.Outcome, v.Word, v.Filter, v.Reason = Leaves, atoll.RowPlacementEdited, r.filter, r.reason
			return v
		}
	}
	evict, why := f.eviction(c, now)
	if !evict.IsZero() && !evict.After(now) {
		v.Outcome, v.Word, v.Filter, v.Reason = Leaves, atoll.RowEvicted, FilterTaints, why
		return v
	}
	v.EvictAt, v.Placement = evict, f.remember(row)
	if len(rs) == 0 {
		v.Outcome, v.Anew = Placed, f.anew(row)
		return v
	}
	v.Outcome, v.Word, v.Filter, v.Reason = Kept, atoll.RowUnfit, rs[0].filter, rs[0].reason
	anew := f.anew(row)
	if unfit != v1alpha1.UnfitRemove && !anew || rs[0].filter == FilterAccepted || rs[0].filter == FilterRemoval {
		return v
	}
	for _, r := range rs {
		if !r.reported {
			if v.Outcome, v.Filter, v.Reason = Leaves, r.filter, r.reason; anew {
				v.Word = atoll.RowRebalanced
			}
			break
		}
	}
	return v
}

// edited tells whether the refusal comes from an edit of the placement: names do
// not drift, and a selector that the row does not remember is a new one. Whether
// a cluster is accepted, tainted NoSchedule, in a set that the namespace may use or
// serves the Bundle's kinds is never an edit.
func edited(r refusal, row atoll.RowSpec) bool {
	switch r.filter {
	case FilterExclude, FilterNames:
		return true
	}
	return r.print != "" && r.print != printAt(row.Placement, r.place)
}

// Verdict on one cluster by name; false when the decision knows none.
func (d Decision) Verdict(cluster string) (Verdict, bool) {
	i, ok := slices.BinarySearchFunc(d.Verdicts, cluster, func(v Verdict, name string) int { return strings.Compare(v.Cluster, name) })
	if !ok {
		return Verdict{}, false
	}
	return d.Verdicts[i], true
}

// String for people.
func (v Verdict) String() string {
	if v.Reason == "" {
		return string(v.Outcome)
	}
	return fmt.Sprintf("%s (%s: %s)", v.Outcome, v.Filter, v.Reason)
}
