package place

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// usage is what rows use of the clusters that state their capacity, kept up row by row:
// a cluster's rows are read when somebody first asks about it, and from then on those that
// change. Clusters that state nothing cost nothing.
//
// What is on its way counts: a step takes what its rows are about to use, under the
// ledger's lock, and that counts until the rows can be read or the write has failed. So
// no two steps are given the same last place.
type usage struct {
	mu      sync.Mutex
	members map[string]*memberUsage // by cluster UID
	// frees count, by cluster name, how often capacity came free, so that who was refused
	// knows whether that was since.
	frees map[string]uint64
	// crowded are the clusters for whose capacity a Bundle waits, by Bundle UID, and the
	// other way round. One that waits for many is noted under anywhere.
	crowded map[string][]string
	waiting map[string]map[string]bool
	// refused is the revision, by Bundle UID, that had no place in the crowded clusters.
	refused map[string]string
	// base of what is only supposed: the usage of supposed Bundles is theirs, that of all
	// others the base's.
	base     *Reconciler
	supposed []string
}

// mostCrowded clusters are noted of a Bundle.
const (
	mostCrowded = 64
	anywhere    = ""
)

type memberUsage struct {
	name string
	// loaded: all rows that there are were read, or are stale.
	loaded bool
	sum    schedule.Use
	rows   map[string]schedule.Use // by Bundle UID
	// stale rows changed since they were read, by the change. What is taken is not read
	// before it is written, or is not.
	stale  map[string]uint64
	taken  map[string]bool
	change uint64
}

func newUsage() *usage {
	return &usage{
		members: map[string]*memberUsage{}, frees: map[string]uint64{},
		crowded: map[string][]string{}, waiting: map[string]map[string]bool{}, refused: map[string]string{},
	}
}

// set what a Bundle uses; freed: that is less of something than before.
func (m *memberUsage) set(bundle string, use schedule.Use) (freed bool) {
	was, over := m.rows[bundle], m.sum.Over()
	if m.sum = m.sum.With(was, -1).With(use, 1); len(use) == 0 {
		delete(m.rows, bundle)
	} else {
		m.rows[bundle] = use
	}
	if over { // what one of many takes away from such a sum, nobody knows
		m.sum = nil
		for _, use := range m.rows {
			m.sum = m.sum.With(use, 1)
		}
	}
	return len(was.Without(use)) > 0
}

func (m *memberUsage) mark(bundle string) {
	m.change++
	m.stale[bundle] = m.change
}

// member that is asked about, and whether all of its rows are known to be there; nil
// before somebody asks.
func (u *usage) member(uid string) (m *memberUsage, loaded bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m = u.members[uid]
	return m, m != nil && m.loaded
}

// used tells what other Bundles use of a cluster, and what this one does.
func (r *Reconciler) used(ctx context.Context, c *schedule.Cluster, bundle string) (others, own schedule.Use, err error) {
	u := r.usage
	if err := r.refresh(ctx, c); err != nil {
		return nil, nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.members[c.UID]
	if m == nil { // its Cluster went meanwhile
		return nil, nil, nil
	}
	own = m.rows[bundle]
	return m.sum.With(own, -1), own, nil
}

// refresh what is known of a cluster's rows.
func (r *Reconciler) refresh(ctx context.Context, c *schedule.Cluster) error {
	u := r.usage
	m, loaded := u.member(c.UID)
	if !loaded {
		var err error
		if m, err = r.load(ctx, c); err != nil {
			return err
		}
	}
	u.mu.Lock()
	var stale map[string]uint64
	if len(m.stale) > 0 {
		stale = maps.Clone(m.stale)
	}
	u.mu.Unlock()
	freed := false
	for bundle, change := range stale {
		use, err := r.uses(ctx, bundle, c)
		if err != nil {
			return fmt.Errorf("count what cluster %s holds: %w", c.Name, err)
		}
		u.mu.Lock()
		if m.stale[bundle] == change && !m.taken[bundle] {
			delete(m.stale, bundle)
			freed = m.set(bundle, use) || freed
		}
		u.mu.Unlock()
	}
	if !loaded {
		u.mu.Lock()
		m.loaded = true
		u.mu.Unlock()
	}
	if freed {
		r.freed(c.Name)
	}
	return nil
}

// load begins to count a cluster: its rows are to be read.
func (r *Reconciler) load(ctx context.Context, c *schedule.Cluster) (*memberUsage, error) {
	u := r.usage
	u.mu.Lock()
	m := u.members[c.UID]
	if m == nil {
		m = &memberUsage{name: c.Name, rows: map[string]schedule.Use{}, stale: map[string]uint64{}, taken: map[string]bool{}}
		u.members[c.UID] = m
	}
	for _, bundle := range u.supposed {
		m.mark(bundle)
	}
	u.mu.Unlock()
	if based, err := r.loadBase(ctx, c, m); based || err != nil {
		return m, err
	}
	// Rows that change from here on are marked; those that were there before are listed.
	rows := r.Rows.OfCluster(c.UID)
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range rows {
		bundle := rows[i].Bundle.UID
		if _, known := m.rows[bundle]; !known && m.stale[bundle] == 0 {
			m.mark(bundle)
		}
	}
	return m, nil
}

// loadBase begins with what the base counts, where that counts the cluster.
func (r *Reconciler) loadBase(ctx context.Context, c *schedule.Cluster, m *memberUsage) (based bool, err error) {
	u := r.usage
	if u.base == nil {
		return false, nil
	}
	known := u.base.index.clusters([]string{c.Name})
	if len(known) == 0 || known[0].UID != c.UID || len(known[0].Capacity) == 0 {
		return false, nil
	}
	if err := u.base.refresh(ctx, c); err != nil {
		return false, err
	}
	of := u.base.usage
	of.mu.Lock()
	defer of.mu.Unlock()
	from := of.members[c.UID]
	if from == nil || from.sum.Over() { // such a sum takes all rows to change
		return false, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	m.sum = from.sum
	for _, bundle := range u.supposed {
		if use, has := from.rows[bundle]; has {
			m.rows[bundle] = use
		}
	}
	return true, nil
}

// uses is what a Bundle's row uses of a cluster.
func (r *Reconciler) uses(ctx context.Context, bundle string, c *schedule.Cluster) (schedule.Use, error) {
	row, ok := r.Rows.Get(bundle, c.Name)
	if !ok || row.Spec.UID != c.UID || row.Spec.Phase == atoll.RowVacant || row.Spec.Revision == "" {
		return nil, nil
	}
	d, err := r.demand(ctx, row.Spec.Revision)
	if apierrors.IsNotFound(err) {
		return nil, nil // nobody can tell any more
	}
	return d.Use(row.Spec.Assigned), err
}

// demand of a revision's content, read once.
func (r *Reconciler) demand(ctx context.Context, revision string) (*schedule.Demand, error) {
	if d, ok := r.index.demands.Get(revision); ok {
		return d.(*schedule.Demand), nil
	}
	content, err := r.Revisions.Content(ctx, revision)
	if err != nil {
		return nil, err
	}
	d, err := schedule.DemandOf(content)
	if err == nil {
		r.index.demands.Add(revision, d)
	}
	return d, err
}

// rowsMoved notes which rows are to be read again. One that is gone uses nothing.
func (r *Reconciler) rowsMoved(bundle string, clusters []string) {
	if !r.usage.counts() {
		return
	}
	var freed []string
	for _, c := range r.index.clusters(clusters) {
		if m, _ := r.usage.member(c.UID); m == nil {
			continue
		}
		_, there := r.Rows.Get(bundle, c.Name)
		if r.usage.moved(bundle, c.UID, there) {
			freed = append(freed, c.Name)
		}
	}
	for _, name := range freed {
		r.freed(name)
	}
}

// counts tells whether anything is.
func (u *usage) counts() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.members) > 0
}

func (u *usage) moved(bundle, cluster string, there bool) (freed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.members[cluster]
	if m == nil {
		return false
	}
	m.mark(bundle)
	if there || !m.loaded || m.taken[bundle] {
		return false
	}
	return m.set(bundle, nil)
}

// mark a row of which what it uses is to be counted anew.
func (u *usage) mark(bundle, cluster string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if m := u.members[cluster]; m != nil {
		m.mark(bundle)
	}
}

// forget what a cluster's rows use. That counts as freed: a decision that goes by what
// was is made again.
func (u *usage) forget(name, uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.members[uid] != nil {
		delete(u.members, uid)
		u.frees[name]++
	}
}

// stake is what a step needs to know of capacity, to take what it is given.
type stake struct {
	// demands by revision: of the target, and of those that rows are at.
	demands map[string]*schedule.Demand
	// bounds that the decision knew, by cluster name, of the clusters that state any.
	bounds map[string]*schedule.Cluster
	// answers that the decision was given, by cluster name.
	answers map[string]answer
}

// answer on what is used of a cluster, and how often capacity had come free there before.
type answer struct {
	others, own schedule.Use
	frees       uint64
}

// take what rows are about to use. Where that is more than is left, though the decision
// found enough, nothing is taken, and full says of which clusters that is. settle says
// whether the rows were written, and gives back what they do not use.
func (r *Reconciler) take(s *snapshot, out rollout.Output) (settle func(written bool), full map[string]string) {
	u, bundle, after := r.usage, s.bundle.Ref.UID, map[string]schedule.Use{}
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, spec := range out.Changes {
		c := s.stake.bounds[name]
		if c == nil || u.members[c.UID] == nil {
			continue
		}
		m := u.members[c.UID]
		var use schedule.Use
		if spec != nil {
			use = s.stake.demands[spec.Revision].Use(spec.Assigned)
		}
		own := m.rows[bundle]
		if after[c.UID] = use; c.Capacity.Exceeded(m.sum.With(own, -1), use, own) {
			if full == nil {
				full = map[string]string{}
			}
			full[name] = "others took the capacity that was left"
		}
	}
	if full != nil {
		return nil, full
	}
	before := map[string]schedule.Use{}
	for uid, use := range after {
		m := u.members[uid]
		before[uid], m.taken[bundle] = m.rows[bundle], true
		m.set(bundle, before[uid].Max(use))
	}
	return func(written bool) { r.taken(bundle, before, after, written) }, nil
}

// taken: the rows use what they are to, or else what they did before.
func (r *Reconciler) taken(bundle string, before, after map[string]schedule.Use, written bool) {
	var freed []string
	r.usage.mu.Lock()
	for uid := range after {
		m := r.usage.members[uid]
		if m == nil {
			continue
		}
		use := after[uid]
		if delete(m.taken, bundle); !written {
			use = before[uid]
			m.mark(bundle)
		}
		if m.set(bundle, use) {
			freed = append(freed, m.name)
		}
	}
	r.usage.mu.Unlock()
	for _, name := range freed {
		r.freed(name)
	}
}

// freed: there may be capacity now for those who wait for some of the cluster's.
func (r *Reconciler) freed(cluster string) {
	u := r.usage
	u.mu.Lock()
	u.frees[cluster]++
	waiting := slices.Concat(slices.Collect(maps.Keys(u.waiting[cluster])), slices.Collect(maps.Keys(u.waiting[anywhere])))
	u.mu.Unlock()
	for _, uid := range waiting {
		if r.index.concerned(uid, cluster) {
			r.touched(uid, cluster)
			continue
		}
		if _, has := r.Rows.Get(uid, cluster); has {
			r.touched(uid, cluster)
		}
	}
}

// concerned tells whether a Bundle may come to the cluster, but for its capacity.
func (x *index) concerned(uid, cluster string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, c := x.entries[uid], x.known[cluster]
	return e != nil && e.filter != nil && e.filter.Admits(&c)
}

// waitForCapacity notes for which clusters' capacity the Bundle waits, of all or of those
// that were touched; where some came free since it was refused, it is looked at again.
func (r *Reconciler) waitForCapacity(s *snapshot, out rollout.Output, only map[string]bool) {
	u, uid := r.usage, s.bundle.Ref.UID
	crowded := slices.Concat(s.in.Decision.Crowded, out.Crowded)
	slices.Sort(crowded)
	crowded = slices.Compact(crowded)
	if s.in.Deleting {
		crowded, only = nil, nil
	}
	var again []string
	u.mu.Lock()
	for _, c := range crowded {
		if a, asked := s.stake.answers[c]; asked && a.frees != u.frees[c] {
			again = append(again, c)
		}
	}
	// Where a revision was cut too late for all of them to be asked, they are yet to be.
	missed := only != nil && slices.ContainsFunc(u.crowded[uid], func(c string) bool { return !only[c] })
	if u.waits(uid, crowded, only); len(u.crowded[uid]) > 0 && !missed {
		u.refused[uid] = s.in.Revision
	}
	u.mu.Unlock()
	for _, c := range again {
		r.touched(uid, c)
	}
}

// asksAnew touches the clusters that had no capacity left for another revision of the
// Bundle than the latest, which may ask for less.
func (r *Reconciler) asksAnew(uid string) {
	latest, ok := r.Revisions.Latest(uid)
	if !ok {
		return
	}
	u := r.usage
	u.mu.Lock()
	var again []string
	if u.refused[uid] != latest.Name {
		again = u.crowded[uid]
	}
	u.mu.Unlock()
	for _, c := range again {
		if c == anywhere {
			r.index.incomplete(uid)
		} else {
			r.index.touch(uid, c)
		}
	}
}

// looksAt tells of which clusters a step says anew whether they have capacity left; nil: of
// all.
func (v *view) looksAt(rows []state.Row) map[string]bool {
	if !v.complete && v.reserve == nil {
		return nil
	}
	out := make(map[string]bool, len(v.touched)+len(v.reserve)+len(rows))
	maps.Copy(out, v.touched)
	for _, c := range v.reserve {
		out[c] = true
	}
	for i := range rows {
		out[rows[i].Cluster] = true
	}
	return out
}

// waits notes it; the caller holds the lock.
func (u *usage) waits(uid string, crowded []string, only map[string]bool) {
	was := u.crowded[uid]
	if len(was)+len(crowded) == 0 {
		return
	}
	for _, c := range was {
		if only != nil && !only[c] {
			crowded = append(crowded, c)
		}
		if delete(u.waiting[c], uid); len(u.waiting[c]) == 0 {
			delete(u.waiting, c)
		}
	}
	if len(crowded) > mostCrowded || slices.Contains(crowded, anywhere) {
		crowded = []string{anywhere}
	}
	if u.crowded[uid] = crowded; len(crowded) == 0 {
		delete(u.crowded, uid)
		delete(u.refused, uid)
	}
	for _, c := range crowded {
		if u.waiting[c] == nil {
			u.waiting[c] = map[string]bool{}
		}
		u.waiting[c][uid] = true
	}
}

// forgetBundle that is gone.
func (u *usage) forgetBundle(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waits(uid, nil, nil)
}

// capacityChanged: a cluster states another capacity. What is under way may have decided by
// the old one, and yet to say for what it waits; what waits may come now.
func (r *Reconciler) capacityChanged(was, is schedule.Cluster) {
	if len(was.Capacity) > 0 && !slices.Equal(was.Capacity, is.Capacity) {
		r.touchAll(r.index.underWay(), is.Name)
		r.freed(is.Name)
	}
	if was.UID != is.UID || len(is.Capacity) == 0 {
		r.usage.forget(is.Name, was.UID)
	}
}

// stakeOf the clusters that a step looks at: nothing where none states its capacity.
func (r *Reconciler) stakeOf(ctx context.Context, clusters []schedule.Cluster, rows []state.Row, target string) (s stake, err error) {
	for i := range clusters {
		if c := &clusters[i]; len(c.Capacity) > 0 {
			if s.bounds == nil {
				s = stake{demands: map[string]*schedule.Demand{}, bounds: map[string]*schedule.Cluster{}, answers: map[string]answer{}}
			}
			s.bounds[c.Name] = c
		}
	}
	if s.bounds == nil || target == "" {
		return stake{}, nil
	}
	need := []string{target}
	for i := range rows {
		if s.bounds[rows[i].Cluster] != nil {
			need = append(need, rows[i].Spec.Revision)
		}
	}
	for _, revision := range need {
		if s.demands[revision] != nil {
			continue
		}
		if s.demands[revision], err = r.demand(ctx, revision); err != nil {
			return s, err
		}
	}
	return s, nil
}

// asker of what is used, for one decision: the same answer each time. failed gives the
// first error.
func (r *Reconciler) asker(ctx context.Context, s *stake, bundle string) (used func(c *schedule.Cluster) (others, own schedule.Use), failed func() error) {
	var first error
	return func(c *schedule.Cluster) (others, own schedule.Use) {
		a, asked := s.answers[c.Name]
		if asked || first != nil {
			return a.others, a.own
		}
		r.usage.mu.Lock()
		a.frees = r.usage.frees[c.Name]
		r.usage.mu.Unlock()
		if a.others, a.own, first = r.used(ctx, c, bundle); first == nil {
			s.answers[c.Name] = a
		}
		return a.others, a.own
	}, func() error { return first }
}
