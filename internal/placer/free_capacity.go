package placer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

const (
	// promiseSettleTime is how long the pods of an applied row may be missing in the agent's
	// report; agents report within 30 s.
	promiseSettleTime = 45 * time.Second
	// promiseMaxAge is how long a promise counts although no agent acts on it.
	promiseMaxAge = 10 * time.Minute
	// reportSettleTime is how long a row must be Ready until a report counts its pods.
	reportSettleTime = 5 * time.Second
	// freeCapacityDebounce is how long a Bundle waits for further reports of free capacity.
	freeCapacityDebounce = 5 * time.Second
)

// capacityLedger holds the free capacity that agents report, less what was promised to rows
// since. Decisions use it under the ledger's lock, so that one Bundle's promises count for the
// next.
type capacityLedger struct {
	mu      sync.Mutex
	members map[string]*memberCapacity // by cluster name
	// shortBundles holds the Bundles with replicas that did not fit in their group (true), or in
	// an earlier group or the chosen clusters (false).
	shortBundles map[string]bool
}

type memberCapacity struct {
	// reported is the free capacity in the Cluster's status; isKnown is false when it is unknown.
	reported        freecapacity.NodeClasses
	isKnown         bool
	checkInInterval time.Duration // between check-ins
	promises        []*capacityPromise
	// freeCapacity is the reported capacity less the promises; isStale means that it must be
	// computed again.
	freeCapacity freecapacity.NodeClasses
	isStale      bool
	checkedAt    time.Time
}

// capacityPromise reserves capacity for an item of a row.
type capacityPromise struct {
	bundle, cluster, item string
	generation            int64
	requests              freecapacity.ReplicaRequests
	replicas              int64
	madeAt                time.Time
}

func newCapacityLedger() *capacityLedger {
	return &capacityLedger{members: map[string]*memberCapacity{}, shortBundles: map[string]bool{}}
}

// clone copies the capacity of members, with promises of its own.
func (x *capacityLedger) clone() *capacityLedger {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := newCapacityLedger()
	for name, m := range x.members {
		one := *m
		one.promises = slices.Clone(m.promises)
		out.members[name] = &one
	}
	return out
}

func (x *capacityLedger) ensureMember(name string) *memberCapacity {
	m := x.members[name]
	if m == nil {
		m = &memberCapacity{}
		x.members[name] = m
	}
	return m
}

// setReportedCapacity records the free capacity that a Cluster reports. It returns true when some Bundle
// waits for capacity and there is more than before. An unreadable report counts as unknown.
func (x *capacityLedger) setReportedCapacity(c *v1alpha1.Cluster, rows Rows, now time.Time) (more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.ensureMember(c.Name)
	m.checkInInterval = c.Spec.CheckInInterval()
	is, known := freecapacity.FreeCapacityOf(&c.Status.Resources)
	if !known || c.Spec.ReportedRoom == v1alpha1.RoomIgnore {
		more = m.isKnown // a cluster of unknown capacity takes what fits nowhere else
		m.reported, m.isKnown, m.isStale = nil, false, true
		return more && len(x.shortBundles) > 0
	}
	if m.isKnown && m.reported.Equal(is) {
		return false
	}
	more = len(x.shortBundles) > 0 && (!m.isKnown || hasMoreCapacity(is, m.reported) || is.DiffersInGroups(m.reported))
	m.reported, m.isKnown, m.isStale = is, true, true
	m.promises = slices.DeleteFunc(m.promises, func(p *capacityPromise) bool { return p.isReported(rows, now) })
	return more
}

// hasMoreCapacity reports whether some resource has more capacity than before.
func hasMoreCapacity(is, was freecapacity.NodeClasses) bool {
	sum := func(r freecapacity.NodeClasses, of func(*freecapacity.NodeClass) int64) (n int64) {
		for i := range r {
			n += r[i].Nodes * of(&r[i])
		}
		return n
	}
	more := func(of func(*freecapacity.NodeClass) int64) bool { return sum(is, of) > sum(was, of) }
	if more(func(c *freecapacity.NodeClass) int64 { return c.CPU }) || more(func(c *freecapacity.NodeClass) int64 { return c.Memory }) ||
		more(func(c *freecapacity.NodeClass) int64 { return c.Pods }) {
		return true
	}
	for i := range is {
		for name := range is[i].Other {
			if more(func(c *freecapacity.NodeClass) int64 { return c.Other[name] }) {
				return true
			}
		}
	}
	return false
}

func (x *capacityLedger) removeMember(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.members, name)
}

// decisionWithFreeCapacity adds the members' free capacity to the decision. promised means that some
// of them have unsettled promises.
func (x *capacityLedger) decisionWithFreeCapacity(d schedule.Decision, rows Rows, now time.Time) (out schedule.Decision, promised bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	out = d.WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) {
		m := x.members[cluster]
		if m == nil || !m.isKnown {
			return nil, false
		}
		m.settlePromises(rows, now)
		promised = promised || len(m.promises) > 0
		return m.freeCapacity, true
	})
	return out, promised
}

// settlePromises drops promises that the report includes, at most once a second, and computes
// what is left.
func (m *memberCapacity) settlePromises(rows Rows, now time.Time) {
	if len(m.promises) > 0 && now.Sub(m.checkedAt) >= time.Second {
		m.checkedAt = now
		n := len(m.promises)
		m.promises = slices.DeleteFunc(m.promises, func(p *capacityPromise) bool { return p.isExpired(rows, m.checkInInterval, now) })
		m.isStale = m.isStale || len(m.promises) < n
	}
	m.updateFreeCapacity()
}

// updateFreeCapacity computes what is left, unless nothing changed.
func (m *memberCapacity) updateFreeCapacity() {
	if !m.isStale {
		return
	}
	m.freeCapacity, m.isStale = m.reported, false
	for _, p := range m.promises {
		m.freeCapacity = schedule.TakeCapacity(m.freeCapacity, p.requests, p.replicas)
	}
}

// isReported reports whether a new report of the cluster counts the pods of the promise.
func (p *capacityPromise) isReported(rows Rows, now time.Time) bool {
	row, ok := rows.Get(p.bundle, p.cluster)
	return ok && p.isApplied(row) && row.Status.State == atoll.RowReady && now.Sub(row.Status.SinceTime()) >= reportSettleTime
}

// isApplied reports whether the agent has applied the row of the promise.
func (p *capacityPromise) isApplied(row state.Row) bool {
	return row.Status != nil && row.Status.Generation >= p.generation && row.Status.Applied
}

func (p *capacityPromise) isExpired(rows Rows, every time.Duration, now time.Time) bool {
	row, ok := rows.Get(p.bundle, p.cluster)
	switch {
	case now.Sub(p.madeAt) >= promiseMaxAge+2*every:
		return true
	case !ok: // not written yet, or deleted
		return now.Sub(p.madeAt) >= promiseSettleTime
	case !p.isApplied(row):
		return false
	}
	// The agent's clock may differ from the hub's.
	acted := row.Status.SinceTime()
	if acted.Before(p.madeAt) {
		acted = p.madeAt
	}
	return now.Sub(acted) >= promiseSettleTime+2*every
}

// promiseCapacity promises the replicas that the changes add to rows. back withdraws the
// promises.
func (x *capacityLedger) promiseCapacity(in *rollout.Input, changes map[string]*atoll.RowSpec) (back func()) {
	workloads := in.Decision.DividedWorkloads()
	if len(workloads) == 0 {
		return func() {}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var made []*capacityPromise
	for cluster, spec := range changes {
		if spec == nil {
			continue
		}
		had := in.Rows[cluster].Spec.Assigned
		for i := range workloads {
			w := &workloads[i]
			item := w.Key.String()
			if n := spec.Assigned[item] - had[item]; n > 0 {
				p := &capacityPromise{bundle: in.BundleUID, cluster: cluster, item: item, generation: spec.Generation, requests: w.Requests, replicas: n, madeAt: in.Now}
				made = append(made, p)
				x.addPromise(p)
			}
		}
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, p := range made {
			m := x.ensureMember(p.cluster)
			m.promises, m.isStale = slices.DeleteFunc(m.promises, func(o *capacityPromise) bool { return o == p }), true
		}
	}
}

func (x *capacityLedger) addPromise(p *capacityPromise) {
	m := x.ensureMember(p.cluster)
	m.promises = append(m.promises, p)
	if !m.isStale && m.isKnown {
		m.freeCapacity = schedule.TakeCapacity(m.freeCapacity, p.requests, p.replicas)
	}
}

// recordGroupShortage records whether a Bundle waits for capacity, in its group or in an earlier one.
func (x *capacityLedger) recordGroupShortage(uid string, here, earlier bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if here || earlier {
		x.shortBundles[uid] = here
	} else {
		delete(x.shortBundles, uid)
	}
}

func (x *capacityLedger) copyShortages() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.shortBundles)
}

// freeCapacityChanged reconciles the Bundles that wait for capacity when the cluster reports
// more. Running Bundles stay as they are.
func (r *PlacementReconciler) freeCapacityChanged(c *v1alpha1.Cluster) {
	if !r.capacity.setReportedCapacity(c, r.Rows, time.Now()) {
		return
	}
	is := r.Views.ViewOf(c)
	for uid, here := range r.capacity.copyShortages() {
		_, holds := r.Rows.Get(uid, c.Name)
		if here && holds || r.index.awaitsCapacityIn(uid, &is) {
			r.index.requireAllRows(uid)
			r.bundleLoop.EnqueueAfter(uid, freeCapacityDebounce)
		}
	}
}

// withFreeCapacity adds free capacity to a decision that uses it.
func (r *PlacementReconciler) withFreeCapacity(d schedule.Decision, now time.Time) (out schedule.Decision, promised bool) {
	if !d.UsesFreeCapacity() {
		return d, false
	}
	return r.capacity.decisionWithFreeCapacity(d, r.Rows, now)
}

// recordFreeCapacityWait records whether the Bundle waits for capacity, and reconciles it when
// promises settle.
func (r *PlacementReconciler) recordFreeCapacityWait(s stepInput, out rollout.Output) {
	short := s.rollout.Decision.UsesFreeCapacity() && len(out.Shortages) > 0
	r.capacity.recordGroupShortage(s.bundle.Ref.UID, short, s.rollout.Decision.EarlierGroupFull || s.rollout.Decision.Overflows)
	if short && s.hasPromises {
		r.bundleLoop.EnqueueAfter(s.bundle.Ref.UID, promiseSettleTime)
	}
}

// restoreCapacityPromises promises again what rows got shortly before this hub started to decide.
func (r *PlacementReconciler) restoreCapacityPromises(ctx context.Context) {
	now := time.Now()
	for _, b := range r.Bundles.List() {
		var workloads []schedule.Workload
		for _, row := range r.Rows.ListOfBundle(b.Ref.UID) {
			young := now.Sub(time.Unix(row.Spec.JoinedOrGrownAt(), 0)) < promiseMaxAge
			if len(row.Spec.Assigned) == 0 || !young || row.Status != nil && row.Status.Generation >= row.Spec.Generation && row.Status.State == atoll.RowReady {
				continue
			}
			if workloads == nil {
				target, content, err := r.latestContent(ctx, b)
				if err != nil {
					break // the step reports the error
				}
				if workloads, err = r.index.workloadsOf(target, content); err != nil || len(workloads) == 0 {
					break
				}
			}
			r.capacity.restorePromise(row, workloads, now)
		}
	}
}

func (x *capacityLedger) restorePromise(row state.Row, workloads []schedule.Workload, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range workloads {
		item := workloads[i].Key.String()
		if n := row.Spec.Assigned[item]; n > 0 {
			x.addPromise(&capacityPromise{
				bundle: row.Bundle.UID, cluster: row.Cluster, item: item, generation: row.Spec.Generation,
				requests: workloads[i].Requests, replicas: n, madeAt: now,
			})
		}
	}
}
