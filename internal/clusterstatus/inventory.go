// Package clusterstatus keeps the status of Clusters true: the members' facts, as their agents
// report them, and whether they can be reached.
//
// Contract: being alive is not a write. A Cluster's status is written when its content changes,
// never periodically, and not when an agent checks in. A small change of only the pods' requests
// is written not more often than every 10 minutes. Ready turns Unknown SilentAfter after a stream
// was lost, or SilentAfter after the second check-in was missed, and not before the hub itself has
// been up for that long. If more of the fleet than SilentShare falls silent within a minute, or misses a
// check-in at the same time, the hub or the network is at fault: none
// of these Clusters is written, and the hub logs it once instead. A set of APIs is stored once,
// whatever the number of members that serve it. For agents' certificates only an overdue renewal
// is written. A Reconciler is safe for concurrent use; the calls by which the gateway reports
// events never block.
package clusterstatus

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// settle is how long changes of what a member is, its readiness aside, are
	// collected after a write.
	settle = 5 * time.Second
	// workers write at a time: a write waits for the store, which takes many at once, far
	// longer than it works. With fewer than there are joins under way, statuses fall
	// behind them.
	workers = 64
)

// Clusters is the table of members. It is read under the Reconciler's lock: it must hold
// none of its own while it calls subscribers.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	GetByUID(uid string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Options of a Reconciler. Clusters, Client and Logger are required.
type Options struct {
	Clusters Clusters
	// Client writes Clusters' statuses and APISets; it must not read from a cache.
	Client client.Client
	Logger *slog.Logger
	// Metrics are registered here; default: nowhere.
	Metrics prometheus.Registerer
	// SilentAfter is for how long an agent may be silent before Ready turns
	// Unknown; default 35 s, which is more than the 21 s in which a half-open link
	// is found, and under 40 s.
	SilentAfter time.Duration
	// SilentShare of the fleet, and CountHeldSilences, that may fall silent within a
	// minute and still be written; defaults 0.2 and 3.
	SilentShare    float64
	SilentClusters int
	// Leads reports whether this hub, of several, decides; default: it does. One that
	// does not writes only of members whose agents' streams it holds, or whose agents it runs.
	Leads func() bool
	// Complete reports whether all hubs have sent their lists of streams; default: they have. No
	// cluster turns Unknown before.
	Complete func() bool
	// OnSilence is called when the fleet falls silent and when that is over; it must not block.
	// Default: only log and metrics.
	OnSilence func(silent bool, message string)
}

// ClusterStatusReconciler reconciles Clusters' statuses. Make it with New.
type ClusterStatusReconciler struct {
	o       Options
	loop    *reconcile.Loop[string] // by name
	writes  prometheus.Counter
	silence prometheus.Gauge
	upkeep  *pace.Limiter

	mu      sync.Mutex
	calm    time.Time // when much of the fleet was silent last
	started time.Time // of Run
	members map[string]*member
	uids    map[string]string // cluster name → UID, for members that are known
	fleet   map[string]struct{}
	losses  lossCounter         // of streams
	overdue *overdueCounter     // of check-ins
	held    map[string]struct{} // UIDs whose silence is not written
	apiSets apiSets
}

// member is what is known of one cluster since the hub started.
type member struct {
	memberFacts
	connectedElsewhere bool      // another hub holds a stream
	carriage           string    // of the connection that came last, here or elsewhere
	newest             newest    // certificate
	pushed             *Pushed   // the state of the agent that this hub runs; nil: it runs none
	lost               time.Time // when the stream went; zero while up or never seen
	// every is how often the agent was to check in when the stream went, which it keeps to until it
	// receives another; 0: it was to hold the stream.
	every time.Duration
	apis  []string // to be stored
	// newAPISets is the member's budget of new sets of APIs.
	newAPISets pace.Bucket
	// conditions is the member's budget of writes of changed conditions.
	conditions pace.Bucket
	wrote      time.Time
	// nextCheckIn to write that its load has changed, among all that wait for that; zero: it requested
	// none.
	nextCheckIn time.Time
	// outdated is the version of the Cluster that is known not to be the last: the
	// table is about to show another.
	outdated string
	met      time.Time // when it was first known of
}

// New makes a Reconciler that follows the table from now on.
func New(o Options) *ClusterStatusReconciler {
	if o.SilentAfter <= 0 {
		o.SilentAfter = 35 * time.Second
	}
	if o.SilentShare <= 0 {
		o.SilentShare = 0.2
	}
	if o.SilentClusters <= 0 {
		o.SilentClusters = 3
	}
	if o.Complete == nil {
		o.Complete = func() bool { return true }
	}
	if o.OnSilence == nil {
		o.OnSilence = func(bool, string) {}
	}
	r := &ClusterStatusReconciler{
		o:       o,
		upkeep:  pace.ClusterWrites.NewLimiter(),
		writes:  metrictable.ClusterWrites.NewCounter(),
		silence: metrictable.ClusterHeld.NewGauge(),
		members: map[string]*member{}, uids: map[string]string{}, fleet: map[string]struct{}{},
		losses: lossCounter{}, overdue: newOverdueCounter(), held: map[string]struct{}{}, apiSets: newAPISets(),
	}
	r.loop = reconcile.New(reconcile.Options[string]{
		Name: "clusterstatus", Reconcile: r.reconcileCluster, Workers: workers,
		Failed: func(name string, err error) {
			o.Logger.Error("cannot write what a cluster is; the hub tries again", "cluster", name, "err", err)
		},
	})
	if o.Metrics != nil {
		o.Metrics.MustRegister(r.writes, r.silence)
	}
	o.Clusters.Subscribe(r.recordAndEnqueueCluster)
	return r
}

// Run writes until ctx ends.
func (r *ClusterStatusReconciler) Run(ctx context.Context) error {
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	var collector sync.WaitGroup
	defer collector.Wait()
	collector.Go(func() { r.deleteUnusedAPISets(ctx) })
	r.loop.Run(ctx, func() {
		for _, c := range r.o.Clusters.List() {
			r.recordAndEnqueueCluster(c.Name)
		}
	})
	return nil
}

// StreamUp reports that the member's agent holds a stream, and how its connection comes.
func (r *ClusterStatusReconciler) StreamUp(uid, carriage string) {
	r.mu.Lock()
	m := r.ensureMember(uid)
	r.clearLostMark(m)
	m.carriage = carriage
	m.up, m.fresh, m.silent = true, false, false
	release := r.releaseHeldSilences(uid, time.Now())
	r.mu.Unlock()
	r.enqueueClusters(append(release, uid)...)
}

// StreamDown reports that the stream is gone and no other took its place, and the time of the
// agent's last message. An agent that checks in is expected to be back in time.
func (r *ClusterStatusReconciler) StreamDown(uid string, heard time.Time) {
	r.mu.Lock()
	c, known := r.o.Clusters.GetByUID(uid)
	m := r.ensureMember(uid)
	m.up = false
	switch {
	case !known && !m.connectedElsewhere: // its Cluster is gone, which ended the stream
		delete(r.members, uid)
	case m.connectedElsewhere:
		m.memberFacts, m.apis = memberFacts{}, nil
	case known:
		r.markLost(m, &c.Spec, heard)
	}
	every := m.every
	r.mu.Unlock()
	switch {
	case known && every > 0: // nothing changes before
		r.loop.EnqueueAfter(c.Name, r.silenceDelay(every))
	case known:
		r.loop.EnqueueNow(c.Name)
	}
}

// silenceDelay is how long after its last check-in a member is silent.
func (r *ClusterStatusReconciler) silenceDelay(every time.Duration) time.Duration {
	return session.CheckInSchedule{Interval: every}.MissedAfter() + r.o.SilentAfter
}

// markLost marks a member from then on; the caller holds the lock.
func (r *ClusterStatusReconciler) markLost(m *member, spec *v1alpha1.ClusterSpec, at time.Time) {
	r.clearLostMark(m)
	if m.lost, m.every = at, spec.CheckInInterval(); m.every > 0 {
		r.overdue.expectUntil(m.checkInMissedAt(r.o.SilentAfter))
	} else {
		r.losses.add(at)
	}
}

// clearLostMark removes the mark of a lost member that is connected again or gone for good. The
// caller holds the lock.
func (r *ClusterStatusReconciler) clearLostMark(m *member) {
	switch {
	case m.lost.IsZero():
	case m.every == 0:
		r.losses.remove(m.lost)
	case !m.silent:
		r.overdue.removeOne(m.checkInMissedAt(r.o.SilentAfter))
	}
	m.lost = time.Time{}
}

// checkInMissedAt is when the member has missed a check-in.
func (m *member) checkInMissedAt(grace time.Duration) time.Time {
	return m.lost.Add(session.CheckInSchedule{Interval: m.every}.OverdueAfter() + grace)
}

// RecordInventory records what an agent reports of its member. The frame belongs to the Reconciler.
func (r *ClusterStatusReconciler) RecordInventory(uid string, i *pb.Inventory) {
	r.mu.Lock()
	m := r.ensureMember(uid)
	m.inventory, m.fresh, m.answers, m.trouble = i, true, i.GetMemberReady(), phrase.TruncateText(i.GetMemberMessage(), troubleMost)
	if len(i.GetApis()) > 0 {
		m.apis = i.GetApis()
	}
	i.Apis = nil
	r.mu.Unlock()
	r.enqueueClusters(uid)
}

// RecordUnclaimed records the bundles that the member holds without a row.
func (r *ClusterStatusReconciler) RecordUnclaimed(uid string, bundles []string) {
	r.mu.Lock()
	m := r.ensureMember(uid)
	changed := !m.compared || !slices.Equal(m.unclaimed, bundles)
	m.unclaimed, m.compared = bundles, true
	r.mu.Unlock()
	if changed {
		r.enqueueClusters(uid)
	}
}

// CountHeldSilences returns how many clusters are silent without being written as such; zero
// while all is well.
func (r *ClusterStatusReconciler) CountHeldSilences() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// ensureMember returns the member of that UID; the caller holds the lock.
func (r *ClusterStatusReconciler) ensureMember(uid string) *member {
	m, ok := r.members[uid]
	if !ok {
		m = &member{met: time.Now(), newAPISets: pace.NewAPISets.NewBucket(), conditions: pace.ConditionChanges.NewBucket()}
		r.members[uid] = m
	}
	return m
}

func (r *ClusterStatusReconciler) enqueueClusters(uids ...string) {
	for _, uid := range uids {
		if c, ok := r.o.Clusters.GetByUID(uid); ok {
			r.loop.EnqueueNow(c.Name)
		}
	}
}

// recordAndEnqueueCluster follows the table: new and deleted members of the fleet. The table is read under
// the lock, here and wherever a member is made of it: of two concurrent readers, the later one has
// read the newer state.
func (r *ClusterStatusReconciler) recordAndEnqueueCluster(name string) {
	if r.recordCluster(name) {
		r.loop.EnqueueNow(name)
	}
}

// recordCluster records the state of a Cluster in the table, and reports whether it exists.
func (r *ClusterStatusReconciler) recordCluster(name string) (exists bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.o.Clusters.Get(name)
	uid, had := r.uids[name]
	if had && (!ok || string(c.UID) != uid) {
		if m := r.members[uid]; m != nil {
			r.clearLostMark(m)
		}
		delete(r.members, uid)
		delete(r.held, uid)
		delete(r.uids, name)
	}
	if ok {
		r.uids[name] = string(c.UID)
		r.apiSets.setUse(name, c.Status.APIsHash)
	} else {
		r.apiSets.setUse(name, "")
	}
	if ok && c.Spec.Accepted && hasJoined(c) {
		r.fleet[name] = struct{}{}
	} else {
		delete(r.fleet, name)
	}
	return ok
}

// reconcileCluster reconciles one Cluster; after is when to reconcile again, 0 for at the next change.
func (r *ClusterStatusReconciler) reconcileCluster(ctx context.Context, name string) (after time.Duration, err error) {
	k, ok := r.readCluster(name)
	if !ok {
		return 0, nil
	}
	c, m, seen, now, after := k.cluster, k.member, k.facts, k.now, k.after
	if len(k.apis) > 0 {
		wait, err := r.storeReportedAPIs(ctx, m, seen.inventory.GetApisHash(), k.apis)
		if err != nil {
			return 0, err
		}
		after, seen.apisPending = shorterWait(after, wait), wait > 0
	}
	if wait := r.firstInventoryWait(c, m, now); wait > 0 {
		return shorterWait(after, wait), nil
	}
	next := deriveStatus(c, seen, metav1.NewTime(now))
	if equalStatuses(c.Status, next) {
		r.dropWrittenInventory(m, seen.inventory)
		return after, nil
	}
	if wait := r.statusWriteDelay(m, c.Status, next, now); wait > 0 {
		return shorterWait(after, wait), nil
	}
	if err := r.writeStatus(ctx, c, m, next, now); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return after, nil
}

// clusterReading is what one reconcile of a Cluster reads under the lock.
type clusterReading struct {
	cluster *v1alpha1.Cluster
	member  *member
	facts   memberFacts
	apis    []string // to be stored
	now     time.Time
	// after is when the member's silence is decided again; 0: at the next change.
	after time.Duration
}

// readCluster reads a Cluster and its member, and decides about the member's silence. ok is false
// when the Cluster is gone, or its status is not to be written now.
func (r *ClusterStatusReconciler) readCluster(name string) (k clusterReading, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.o.Clusters.Get(name)
	if !ok {
		return k, false
	}
	m := r.ensureMember(string(c.UID))
	if r.isStatusWrittenByOtherHub(m) || m.outdated == c.ResourceVersion {
		return k, false
	}
	k = clusterReading{cluster: c, member: m, apis: m.apis, now: time.Now()}
	k.after = r.decideSilence(string(c.UID), c, m, k.now)
	k.facts = r.factsForStatus(m)
	return k, true
}

// factsForStatus returns the facts that this hub may derive a status from. The caller holds the lock.
func (r *ClusterStatusReconciler) factsForStatus(m *member) memberFacts {
	seen := m.memberFacts
	seen.pushed = m.pushed
	if !m.up && m.inventory == nil && !r.isLeader() {
		seen.fresh = false // the leader decides whether it is silent
	}
	return seen
}

// writeStatus writes the status of a Cluster, and notes that it did.
func (r *ClusterStatusReconciler) writeStatus(ctx context.Context, c *v1alpha1.Cluster, m *member, next v1alpha1.ClusterStatus, now time.Time) error {
	conditionSetter{c, &next.Conditions, metav1.NewTime(now)}.addMissingConditions()
	write := c.DeepCopy()
	write.Status = next
	err := r.o.Client.Status().Update(ctx, write)
	if err != nil && !apierrors.IsConflict(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || write.ResourceVersion != c.ResourceVersion {
		m.outdated = c.ResourceVersion // a second reader would write in vain
	}
	if err == nil {
		m.wrote, m.nextCheckIn = now, time.Time{}
		if !equalConditionStatuses(c.Status.Conditions, next.Conditions) {
			m.conditions.TakeTokens(now, 1)
		}
		r.writes.Inc()
	}
	return nil
}

// firstInventoryWait is how long the first write of an accepted cluster may wait for its first
// inventory, so that a join is one write.
func (r *ClusterStatusReconciler) firstInventoryWait(c *v1alpha1.Cluster, m *member, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(c.Status.Conditions) > 0 || !c.Spec.Accepted || m.fresh {
		return 0
	}
	return m.met.Add(settle).Sub(now)
}

// dropWrittenInventory drops a member's written inventory, unless a newer one has come or its
// reported APIs still wait.
func (r *ClusterStatusReconciler) dropWrittenInventory(m *member, i *pb.Inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.inventory == i && len(m.apis) == 0 {
		m.inventory = nil
	}
}

// decideSilence decides whether the member counts as silent; the caller holds the lock.
func (r *ClusterStatusReconciler) decideSilence(uid string, c *v1alpha1.Cluster, m *member, now time.Time) (after time.Duration) {
	if m.up || m.connectedElsewhere || !c.Spec.Accepted || !hasJoined(c) || !r.isLeader() {
		return 0
	}
	if m.lost.IsZero() { // not seen since this hub started
		r.markLost(m, &c.Spec, r.started)
	}
	if wait := r.silenceDue(m).Sub(now); wait > 0 {
		return wait
	}
	if m.silent {
		return 0
	}
	if !r.o.Complete() {
		return incomplete
	}
	m.silent = !r.holdForMassSilence(uid, m, now)
	return 0
}

// holdForMassSilence reports whether so many clusters are silent at once that the member does not count as
// silent yet. The caller holds the lock.
func (r *ClusterStatusReconciler) holdForMassSilence(uid string, m *member, now time.Time) bool {
	if m.every > 0 {
		if n := r.overdue.countAt(now); r.isMassSilence(n) {
			r.holdSilence(uid, fmt.Sprintf("%d of %d clusters miss their check-in", n, len(r.fleet)), n)
			return true
		}
		r.overdue.removeOne(m.checkInMissedAt(r.o.SilentAfter))
	} else if n := r.losses.mostPerMinute(m.lost, now); r.isMassSilence(n) {
		r.holdSilence(uid, fmt.Sprintf("%d of %d clusters fell silent within a minute", n, len(r.fleet)), n)
		return true
	}
	return false
}

// silenceDue returns when a lost member counts as silent. Nothing does soon after this hub started, or
// after much of the fleet was silent. The caller holds the lock.
func (r *ClusterStatusReconciler) silenceDue(m *member) time.Time {
	due := m.lost
	if r.started.After(due) {
		due = r.started
	}
	due = due.Add(r.silenceDelay(m.every))
	if back := r.calm.Add(r.o.SilentAfter); back.After(due) {
		due = back
	}
	return due
}

func (r *ClusterStatusReconciler) isMassSilence(n int) bool {
	return n > r.o.SilentClusters && float64(n) > r.o.SilentShare*float64(len(r.fleet))
}

// holdSilence holds back the silence of one member; the caller holds the lock.
func (r *ClusterStatusReconciler) holdSilence(uid, what string, n int) {
	if len(r.held) == 0 {
		message := what + "; their last state is kept, since the hub or its network is the likelier fault"
		r.o.Logger.Error("much of the fleet is silent: "+message+". Look at the hub's own link first", "silent", n, "fleet", len(r.fleet))
		r.o.OnSilence(true, message)
	}
	r.held[uid] = struct{}{}
	r.silence.Set(float64(len(r.held)))
}

// releaseHeldSilences removes a reconnected member from those that are silent. It returns the others once
// they are few enough for their silence to be written. The caller holds the lock.
func (r *ClusterStatusReconciler) releaseHeldSilences(uid string, now time.Time) []string {
	if len(r.held) == 0 {
		return nil
	}
	delete(r.held, uid)
	var rest []string
	if !r.isMassSilence(len(r.held)) && !r.isMassSilence(r.overdue.countAt(now)) {
		for other := range r.held {
			rest = append(rest, other)
		}
		clear(r.held)
		r.calm = now // the rest is about to come back too
		r.o.Logger.Info("the fleet is no longer silent", "still away", len(rest))
		r.o.OnSilence(false, "")
	}
	r.silence.Set(float64(len(r.held)))
	return rest
}

// shorterWait returns the shorter of two waits, of which zero is none.
func shorterWait(a, b time.Duration) time.Duration {
	if b == 0 || a > 0 && a < b {
		return a
	}
	return b
}
