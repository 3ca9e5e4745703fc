// Package inventory keeps the status of Clusters true: what members are, as their
// agents report it, and whether they can be reached.
//
// Contract: being alive is not a write. A Cluster's status is written when what it
// says changes, never periodically, and not when an agent checks in; where that is only
// what pods ask for, and little of what there is, not more often than every 10 minutes. Ready turns
// Unknown SilentAfter after a stream was lost, or SilentAfter after the second
// check-in was missed, and not before the hub itself has been up for that long. If
// more of the fleet than SilentShare falls silent within a minute, or misses a
// check-in at the same time, the fault is taken to be the hub's or the network's:
// none of these Clusters is written, and the hub says so once instead. A set of APIs
// is stored once, whatever the number of members that serve it. Of agents' certificates
// only that they are overdue is written. A Reconciler is safe
// for concurrent use; the calls by which the gateway tells what happens never block.
package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	// settle is how long changes of what a member is, its readiness aside, are
	// collected after a write.
	settle = 5 * time.Second
	// apisLimit is how many APIs a set may list.
	apisLimit = 20_000
	// workers write at a time: a write waits for the store, which takes many at once, far
	// longer than it works. With fewer than there are joins under way, statuses fall
	// behind them.
	workers = 64
)

// Clusters is the table of members. It is read under the Reconciler's lock: it must hold
// none of its own while it calls subscribers.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	ByUID(uid string) (*v1alpha1.Cluster, bool)
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
	// SilentAfter is for how long nothing may be heard of an agent before Ready turns
	// Unknown; default 35 s, which is more than the 21 s in which a half-open link
	// is found, and under 40 s.
	SilentAfter time.Duration
	// SilentShare of the fleet, and SilentClusters, that may fall silent within a
	// minute and still be written; defaults 0.2 and 3.
	SilentShare    float64
	SilentClusters int
	// Leads tells whether this hub, of several, decides; default: it does. One that
	// does not writes only of members whose agents' streams it holds, or whose agents it runs.
	Leads func() bool
	// Complete tells whether all hubs have told whose streams they hold; default: they
	// have. Nobody turns Unknown meanwhile.
	Complete func() bool
	// OnSilence is told when the fleet falls silent and when it is over; it must
	// not block. Default: nobody is told besides log and metrics.
	OnSilence func(silent bool, message string)
}

// Reconciler of Clusters' statuses. Make it with New.
type Reconciler struct {
	o       Options
	queue   workqueue.TypedRateLimitingInterface[string]
	writes  prometheus.Counter
	silence prometheus.Gauge
	upkeep  *rate.Limiter

	mu      sync.Mutex
	calm    time.Time // when much of the fleet was silent last
	started time.Time // of Run
	members map[string]*member
	uids    map[string]string // cluster name → UID, for members that are known
	fleet   map[string]struct{}
	losses  losses              // of streams
	overdue *overdue            // of check-ins
	held    map[string]struct{} // UIDs whose silence is not written
	known   map[string]struct{} // hashes of APISets in the store
}

// member is what is known of one cluster since the hub started.
type member struct {
	facts
	elsewhere bool      // another hub holds a stream
	carriage  string    // of the connection that came last, here or elsewhere
	newest    newest    // certificate
	pushed    *Pushed   // how the agent fares that this hub runs; nil: that is not its to say
	lost      time.Time // when the stream went; zero while up or never seen
	// every is how often the agent was to check in when the stream went, which is
	// what it keeps to until it hears of another; 0: it was to hold the stream.
	every time.Duration
	apis  []string // to be stored
	wrote time.Time
	// turn to write that its load has changed, among all that wait for that; zero: it did
	// not ask for one.
	turn time.Time
	// outdated is the version of the Cluster that is known not to be the last: the
	// table is about to show another.
	outdated string
	met      time.Time // when it was first known of
}

// New makes a Reconciler that follows the table from now on.
func New(o Options) *Reconciler {
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
	r := &Reconciler{
		o:       o,
		upkeep:  rate.NewLimiter(atoll.UpkeepClusters, atoll.UpkeepClusters),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		writes:  prometheus.NewCounter(prometheus.CounterOpts{Namespace: "atoll", Subsystem: "inventory", Name: "cluster_writes_total", Help: "Writes of Clusters' statuses."}),
		silence: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "atoll", Subsystem: "inventory", Name: "silent_clusters_held", Help: "Clusters whose silence is not written, since too much of the fleet is silent at once."}),
		members: map[string]*member{}, uids: map[string]string{}, fleet: map[string]struct{}{},
		losses: losses{}, overdue: newOverdue(), held: map[string]struct{}{}, known: map[string]struct{}{},
	}
	if o.Metrics != nil {
		o.Metrics.MustRegister(r.writes, r.silence)
	}
	o.Clusters.Subscribe(r.note)
	return r
}

// Run writes until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	for _, c := range r.o.Clusters.List() {
		r.note(c.Name)
	}
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Wait()
	return nil
}

// StreamUp tells that the member's agent holds a stream, and how its connection comes.
func (r *Reconciler) StreamUp(uid, carriage string) {
	r.mu.Lock()
	m := r.member(uid)
	r.found(m)
	m.carriage = carriage
	m.up, m.fresh, m.silent = true, false, false
	release := r.release(uid, time.Now())
	r.mu.Unlock()
	r.enqueue(append(release, uid)...)
}

// StreamDown tells that the stream is gone and no other took its place, and when the
// agent was heard of last. An agent that checks in is expected to be back in time.
func (r *Reconciler) StreamDown(uid string, heard time.Time) {
	r.mu.Lock()
	c, known := r.o.Clusters.ByUID(uid)
	m := r.member(uid)
	m.up = false
	switch {
	case !known && !m.elsewhere: // its Cluster is gone, which ended the stream
		delete(r.members, uid)
	case m.elsewhere:
		m.facts, m.apis = facts{}, nil
	case known:
		r.lose(m, &c.Spec, heard)
	}
	every := m.every
	r.mu.Unlock()
	switch {
	case known && every > 0: // nothing changes before
		r.queue.AddAfter(c.Name, r.missedAfter(every))
	case known:
		r.queue.Add(c.Name)
	}
}

// missedAfter is how long after its last check-in a member is silent.
func (r *Reconciler) missedAfter(every time.Duration) time.Duration {
	return session.CheckIn{Interval: every}.MissedAfter() + r.o.SilentAfter
}

// lose a member from then on; the caller holds the lock.
func (r *Reconciler) lose(m *member, spec *v1alpha1.ClusterSpec, at time.Time) {
	r.found(m)
	if m.lost, m.every = at, spec.CheckIn(); m.every > 0 {
		r.overdue.expect(m.missesOne(r.o.SilentAfter))
	} else {
		r.losses.add(at)
	}
}

// found a member: it is not lost any more, or gone for good. The caller holds the
// lock.
func (r *Reconciler) found(m *member) {
	switch {
	case m.lost.IsZero():
	case m.every == 0:
		r.losses.remove(m.lost)
	case !m.silent:
		r.overdue.remove(m.missesOne(r.o.SilentAfter))
	}
	m.lost = time.Time{}
}

// missesOne is when the member has missed a check-in.
func (m *member) missesOne(grace time.Duration) time.Time {
	return m.lost.Add(session.CheckIn{Interval: m.every}.OverdueAfter() + grace)
}

// Observe what an agent reports of its member. The frame belongs to the Reconciler.
func (r *Reconciler) Observe(uid string, i *pb.Inventory) {
	r.mu.Lock()
	m := r.member(uid)
	m.inventory, m.fresh, m.answers, m.trouble = i, true, i.GetMemberReady(), brief(i.GetMemberMessage())
	if n := len(i.GetApis()); n > 0 && n <= apisLimit {
		m.apis = i.GetApis()
	}
	i.Apis = nil
	r.mu.Unlock()
	r.enqueue(uid)
}

// Unclaimed names the bundles that the member holds and no row asks for.
func (r *Reconciler) Unclaimed(uid string, bundles []string) {
	r.mu.Lock()
	m := r.member(uid)
	changed := !m.compared || !slices.Equal(m.unclaimed, bundles)
	m.unclaimed, m.compared = bundles, true
	r.mu.Unlock()
	if changed {
		r.enqueue(uid)
	}
}

// APIsKnown tells whether the store has the list of that hash.
func (r *Reconciler) APIsKnown(ctx context.Context, hash string) (bool, error) {
	r.mu.Lock()
	_, ok := r.known[hash]
	r.mu.Unlock()
	if ok {
		return true, nil
	}
	err := r.o.Client.Get(ctx, client.ObjectKey{Name: hash}, &enginev1.APISet{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the set of APIs %s: %w", hash, err)
	}
	r.mu.Lock()
	r.known[hash] = struct{}{}
	r.mu.Unlock()
	return true, nil
}

// Silent tells how many clusters are silent without being written as such; zero
// while all is well.
func (r *Reconciler) Silent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// member of that UID; the caller holds the lock.
func (r *Reconciler) member(uid string) *member {
	m, ok := r.members[uid]
	if !ok {
		m = &member{met: time.Now()}
		r.members[uid] = m
	}
	return m
}

func (r *Reconciler) enqueue(uids ...string) {
	for _, uid := range uids {
		if c, ok := r.o.Clusters.ByUID(uid); ok {
			r.queue.Add(c.Name)
		}
	}
}

// note follows the table: who is in the fleet, and who is gone from it. The table is read
// under the lock, here and wherever a member is made of what it shows: of two who look
// at the same time, the later one has read what is newer.
func (r *Reconciler) note(name string) {
	r.mu.Lock()
	c, ok := r.o.Clusters.Get(name)
	uid, had := r.uids[name]
	if had && (!ok || string(c.UID) != uid) {
		if m := r.members[uid]; m != nil {
			r.found(m)
		}
		delete(r.members, uid)
		delete(r.held, uid)
		delete(r.uids, name)
	}
	if ok {
		r.uids[name] = string(c.UID)
	}
	if ok && c.Spec.Accepted && joined(c) {
		r.fleet[name] = struct{}{}
	} else {
		delete(r.fleet, name)
	}
	r.mu.Unlock()
	if ok {
		r.queue.Add(name)
	}
}

func (r *Reconciler) work(ctx context.Context) {
	for {
		name, down := r.queue.Get()
		if down {
			return
		}
		after, err := r.reconcile(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			r.o.Logger.Error("cannot write what a cluster is; the hub tries again", "cluster", name, "err", err)
			r.queue.AddRateLimited(name)
		case after > 0:
			r.queue.Forget(name)
			r.queue.AddAfter(name, after)
		default:
			r.queue.Forget(name)
		}
		r.queue.Done(name)
	}
}

// reconcile one Cluster; after tells when to look again, 0 for at the next change.
func (r *Reconciler) reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	r.mu.Lock()
	c, ok := r.o.Clusters.Get(name)
	if !ok {
		r.mu.Unlock()
		return 0, nil
	}
	uid, now := string(c.UID), time.Now()
	m := r.member(uid)
	if r.others(m) || m.outdated == c.ResourceVersion {
		r.mu.Unlock()
		return 0, nil
	}
	after = r.judge(uid, c, m, now)
	seen, apis := m.facts, m.apis
	seen.pushed = m.pushed
	if !m.up && m.inventory == nil && !r.leads() {
		seen.fresh = false // whether it is silent, who leads says
	}
	r.mu.Unlock()
	if len(apis) > 0 {
		if err := r.storeAPIs(ctx, seen.inventory.GetApisHash(), apis); err != nil {
			return 0, err
		}
		r.mu.Lock()
		m.apis = nil
		r.mu.Unlock()
	}
	if wait := r.newborn(c, m, now); wait > 0 {
		return least(after, wait), nil
	}
	next := derive(c, seen, metav1.NewTime(now))
	if equal(c.Status, next) {
		r.written(m, seen.inventory)
		return after, nil
	}
	r.mu.Lock()
	wait := r.wait(m, c.Status, next, now)
	r.mu.Unlock()
	if wait > 0 {
		return least(after, wait), nil
	}
	write := c.DeepCopy()
	write.Status = next
	err = r.o.Client.Status().Update(ctx, write)
	if err != nil && !apierrors.IsConflict(err) {
		return 0, client.IgnoreNotFound(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || write.ResourceVersion != c.ResourceVersion {
		m.outdated = c.ResourceVersion // who reads it again would write in vain
	}
	if err == nil {
		m.wrote, m.turn = now, time.Time{}
		r.writes.Inc()
	}
	return after, nil
}

// newborn is how long the first write of an accepted cluster may wait for its first
// inventory, so that a join is one write.
func (r *Reconciler) newborn(c *v1alpha1.Cluster, m *member, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(c.Status.Conditions) > 0 || !c.Spec.Accepted || m.fresh {
		return 0
	}
	return m.met.Add(settle).Sub(now)
}

// written: the store has what the inventory says, so that it need not be kept.
func (r *Reconciler) written(m *member, i *pb.Inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.inventory == i {
		m.inventory = nil
	}
}

// judge whether the member counts as silent; the caller holds the lock.
func (r *Reconciler) judge(uid string, c *v1alpha1.Cluster, m *member, now time.Time) (after time.Duration) {
	if m.up || m.elsewhere || !c.Spec.Accepted || !joined(c) || !r.leads() {
		return 0
	}
	if m.lost.IsZero() { // not seen since this hub started
		r.lose(m, &c.Spec, r.started)
	}
	due := m.lost
	if r.started.After(due) {
		due = r.started
	}
	due = due.Add(r.missedAfter(m.every))
	if back := r.calm.Add(r.o.SilentAfter); back.After(due) {
		due = back
	}
	if wait := due.Sub(now); wait > 0 {
		return wait
	}
	if m.silent {
		return 0
	}
	if !r.o.Complete() {
		return incomplete
	}
	if m.every > 0 {
		if n := r.overdue.at(now); r.tooMany(n) {
			r.hold(uid, fmt.Sprintf("%d of %d clusters miss their check-in", n, len(r.fleet)), n)
			return 0
		}
		r.overdue.remove(m.missesOne(r.o.SilentAfter))
	} else if n := r.losses.most(m.lost, now); r.tooMany(n) {
		r.hold(uid, fmt.Sprintf("%d of %d clusters fell silent within a minute", n, len(r.fleet)), n)
		return 0
	}
	m.silent = true
	return 0
}

func (r *Reconciler) tooMany(n int) bool {
	return n > r.o.SilentClusters && float64(n) > r.o.SilentShare*float64(len(r.fleet))
}

// hold back the silence of one member; the caller holds the lock.
func (r *Reconciler) hold(uid, what string, n int) {
	if len(r.held) == 0 {
		message := what + "; their last state is kept, since the hub or its network is the likelier fault"
		r.o.Logger.Error("much of the fleet is silent: "+message+". Look at the hub's own link first", "silent", n, "fleet", len(r.fleet))
		r.o.OnSilence(true, message)
	}
	r.held[uid] = struct{}{}
	r.silence.Set(float64(len(r.held)))
}

// release a member that is back, and give the others that are no longer too many to
// be written; the caller holds the lock.
func (r *Reconciler) release(uid string, now time.Time) []string {
	if len(r.held) == 0 {
		return nil
	}
	delete(r.held, uid)
	var rest []string
	if !r.tooMany(len(r.held)) && !r.tooMany(r.overdue.at(now)) {
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

// storeAPIs under their hash, once.
func (r *Reconciler) storeAPIs(ctx context.Context, hash string, apis []string) error {
	r.mu.Lock()
	_, known := r.known[hash]
	r.mu.Unlock()
	if known || !slices.IsSorted(apis) || session.APIsHash(apis) != hash {
		return nil
	}
	err := r.o.Client.Create(ctx, &enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: hash}, APIs: apis})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("store the set of APIs %s: %w", hash, err)
	}
	r.mu.Lock()
	r.known[hash] = struct{}{}
	r.mu.Unlock()
	return nil
}

func least(a, b time.Duration) time.Duration {
	if a > 0 && a < b {
		return a
	}
	return b
}
