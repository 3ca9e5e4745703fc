package placer

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/lru"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// bundleIndex stores, between steps, which clusters matter to which Bundles. A change of a
// cluster then costs one check per Bundle, and a change of a Bundle costs its rows. Everything
// in it can be lost: an entry that is not complete is compared with the whole fleet.
type bundleIndex struct {
	mu      sync.Mutex
	entries map[string]*bundleEntry
	// knownClusters holds the clusters by name, as last compared. Steps use these and nothing
	// newer: a change that is undone before it is compared would otherwise be missed.
	// stepsUnderway holds the Bundles of running steps.
	knownClusters map[string]schedule.Cluster
	// unschedulable are the clusters that a person drains or cordons, by name.
	unschedulable     map[string]struct{}
	stepsUnderway     map[string]bool
	fleet             clusterList
	workloadCache     *lru.Cache // revision → []schedule.Workload
	undividedPodCache *lru.Cache // revision → []schedule.PodDemand
	reserved          podReservations
	movable           movableBundles
	kindCache         *lru.Cache // revision → kindTerms
	termsCache        *lru.Cache // hash of terms → compiledTerms
	demandCache       *lru.Cache // revision → *schedule.Demand
	// connectionWaits holds the Bundles whose decision may differ when a cluster connects or is lost.
	// connected holds the clusters that are connected, as last compared.
	connectionWaits map[string]struct{}
	connected       map[string]bool
	losses          recentLosses
}

type bundleEntry struct {
	uid       string
	terms     schedule.PlacementTerms
	whenUnfit v1alpha1.WhenUnfit
	// suspension of the last step. After it, each cluster is looked at again: what changed in the suspension was not acted upon.
	suspension    *v1alpha1.Suspension
	filter        *schedule.CompiledPlacement
	compiledTerms *compiledTerms
	placementHash string // of the placement
	// isComplete means that every fitting cluster has a row, but for the touched clusters. It is
	// never true for a placement that limits its clusters, whose steps look at every fitting
	// cluster. wantsMore means that such a placement could choose one more cluster.
	isComplete bool
	wantsMore  bool
	// reserve of the last decision over the whole fleet, if it chose as many clusters as it needed.
	reserve   []string
	reserveAt time.Time
	// touchedClusters holds the number of the last touch by cluster. touchCount counts touches,
	// so that a step can distinguish the touches after its start.
	touchedClusters map[string]uint64
	touchCount      uint64
	// needsAllRows means that the next step looks at all rows; otherwise it looks at touched
	// rows. wholeCount counts the requests for such steps; dueAt is when time requests one.
	needsAllRows bool
	wholeCount   uint64
	dueAt        time.Time
	// placedClusters is at least how many clusters fit and hold a row.
	placedClusters int
	// awaitedClusters holds the clusters for whose rows something waits. changedDuringStep holds
	// the clusters whose rows change during a step, which can make any row awaited.
	awaitedClusters     map[string]bool
	changedDuringStep   map[string]bool
	isStepping          bool
	rowCount            int
	reportedPlan        string
	reportedRecall      string
	reportedUnconfirmed string
	intent              *placementIntent
	turns               turnTerms
	// gatesSeen is when this process first read each verdict that is stored.
	gatesSeen map[gateKey]time.Time
	// health of the copies; nil: the application does not move for its health.
	health         *healthWatch
	failback       failbackState
	connectionWait connectionWait
	// waitsForTurn means that rows wait for their turn within the default bound, and isFrozen that they wait for the end of a freeze.
	waitsForTurn, isFrozen bool
	// unreplacedCopies is rollout.Output.UnreplacedCopies of the last step over all rows.
	unreplacedCopies int
}

// placementIntent is the part of a Bundle that decides its placement.
type placementIntent struct {
	spec           v1alpha1.BundleSpec
	confirm        string
	keep           string
	rebalanceAsked string // value of the annotation that requests a rebalance
	correctDrift   string // value of the annotation that orders corrections
	removalHooks   string // order about the hooks of removals
	isDeleting     bool
}

// bundleView is the state of an entry at the start of a step.
type bundleView struct {
	uid             string
	filter          *schedule.CompiledPlacement
	placementHash   string // hash
	isComplete      bool
	touchedClusters map[string]bool
	touchCount      uint64
	wholeCount      uint64
	// isPartial means that only the rows of touched clusters are looked at. placedElsewhere is
	// at least how many other clusters fit and hold a row.
	isPartial       bool
	placedElsewhere int
	// unreplacedCopies and rowCount are those of the entry.
	unreplacedCopies, rowCount int
	// fleet in order, when the whole fleet is looked at; compiledTerms caches which clusters the
	// terms admit.
	fleet         []schedule.Cluster
	fleetVersion  uint64
	compiledTerms *compiledTerms
	// reserve replaces the fleet for a placement that limits its clusters, while rows, touched
	// clusters and the reserve yield as many clusters as needed.
	reserve  []string
	failback failbackState
	// explainAll requests a verdict on every cluster.
	explainAll bool
}

func newBundleIndex() *bundleIndex {
	return &bundleIndex{
		entries: map[string]*bundleEntry{}, knownClusters: map[string]schedule.Cluster{}, unschedulable: map[string]struct{}{}, stepsUnderway: map[string]bool{},
		workloadCache: lru.New(1024), undividedPodCache: lru.New(4096), kindCache: lru.New(4096), termsCache: lru.New(1024), demandCache: lru.New(4096), reserved: newPodReservations(), movable: newMovableBundles(),
		connectionWaits: map[string]struct{}{}, connected: map[string]bool{}, losses: recentLosses{at: map[string]time.Time{}},
	}
}

// viewOf returns the view of a Bundle. New terms are compared with the whole fleet.
func (x *bundleIndex) viewOf(b state.Bundle, terms schedule.PlacementTerms, now time.Time) bundleView {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.ensureEntry(b.Ref.UID)
	if !e.hasTerms(b, terms) {
		e = x.replaceTerms(b, terms)
	}
	v := bundleView{
		uid: b.Ref.UID, filter: e.filter, placementHash: e.placementHash, isComplete: e.isComplete, failback: e.failback,
		touchedClusters: e.touchedSet(), touchCount: e.touchCount, wholeCount: e.wholeCount,
		isPartial: e.isComplete && !e.needsAllRows && (e.dueAt.IsZero() || now.Before(e.dueAt)),
	}
	if v.isPartial {
		v.placedElsewhere, v.unreplacedCopies, v.rowCount = max(e.placedClusters-len(v.touchedClusters), 0), e.unreplacedCopies, e.rowCount
		return v
	}
	e.isStepping, e.needsAllRows, e.changedDuringStep = true, true, nil
	e.health.beginStep()
	if len(e.reserve) > 0 && now.Sub(e.reserveAt) < reserveMaxAge {
		v.reserve = e.reserve
	} else if !v.isComplete && v.filter.NamedClusters() == nil {
		v.fleet, v.compiledTerms = x.fleet.listAll(x.knownClusters), e.compiledTerms
		v.fleetVersion = x.fleet.version
	}
	return v
}

// hasTerms reports whether the entry is of the terms, and of the suspension, of a Bundle.
func (e *bundleEntry) hasTerms(b state.Bundle, terms schedule.PlacementTerms) bool {
	return e.filter != nil && e.whenUnfit == b.Spec.WhenUnfit && equality.Semantic.DeepEqual(e.suspension, b.Spec.Suspension) && equalTerms(e.terms, terms)
}

// replaceTerms sets new terms in the entry of a Bundle. The caller holds the lock, which is
// released while the terms are compiled.
func (x *bundleIndex) replaceTerms(b state.Bundle, terms schedule.PlacementTerms) *bundleEntry {
	c := x.compileUnlocked(terms)
	e, is := x.ensureEntry(b.Ref.UID), failbackState{}
	if e.filter == nil {
		is = restoredFailback(b)
	}
	e.terms, e.whenUnfit, e.suspension, e.placementHash = terms, b.Spec.WhenUnfit, b.Spec.Suspension, c.placementHash
	e.filter, e.compiledTerms, e.isComplete, e.needsAllRows, e.reserve = c.filter, c, false, true, nil
	x.setFailback(e, is)
	return e
}

// compileUnlocked compiles terms without the lock. It takes the lock again although the compiler
// panics: an unlock of an unlocked mutex would end the process.
func (x *bundleIndex) compileUnlocked(terms schedule.PlacementTerms) *compiledTerms {
	x.mu.Unlock()
	defer x.mu.Lock()
	return x.compileTerms(terms)
}

// requireAllRows makes the next step look at all rows of a Bundle, and returns how long the step may wait for further changes.
func (x *bundleIndex) requireAllRows(uid string) (after time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0
	}
	e.requireAllRows()
	return e.awaitDelay()
}

// requireWholeFleet makes the next step look at the whole fleet.
func (x *bundleIndex) requireWholeFleet(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.entries[uid]; e != nil {
		e.isComplete = false
		e.requireAllRows()
	}
}

func (e *bundleEntry) requireAllRows() {
	e.needsAllRows = true
	e.wholeCount++
}

func (x *bundleIndex) ensureEntry(uid string) *bundleEntry {
	e := x.entries[uid]
	if e == nil {
		e = &bundleEntry{uid: uid, touchedClusters: map[string]uint64{}, needsAllRows: true}
		x.entries[uid] = e
	}
	return e
}

// beginStep begins a step of a Bundle, which ends when its writes can be read.
func (x *bundleIndex) beginStep(uid string) (end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stepsUnderway[uid] = true
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.stepsUnderway, uid)
	}
}

// bundlesStepping lists the Bundles whose running step may have read a cluster before its last
// change. Their rows cannot show whether the change matters, because the step may be about to
// write them.
func (x *bundleIndex) bundlesStepping() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Keys(x.stepsUnderway))
}

// clustersNamed returns clusters as last compared, by name.
func (x *bundleIndex) clustersNamed(names []string) []schedule.Cluster {
	out := make([]schedule.Cluster, 0, len(names))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if c, ok := x.knownClusters[name]; ok {
			out = append(out, c)
		}
	}
	return out
}

// recordIntent records the intent of a Bundle, and reports whether it changed.
func (x *bundleIndex) recordIntent(b state.Bundle) bool {
	notes := b.Meta.Annotations
	is := &placementIntent{b.Spec, notes[atoll.AnnotationConfirm], notes[atoll.AnnotationKeep], notes[atoll.AnnotationRebalance], notes[atoll.AnnotationCorrectDrift], removalHooksOf(b), b.Meta.DeletionTimestamp != nil}
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.ensureEntry(b.Ref.UID)
	was := e.intent
	e.intent = is
	return was == nil || !reflect.DeepEqual(was, is)
}

// stepResult is what a step decided and wrote.
type stepResult struct {
	output rollout.Output
	// rowCount is the number of rows, and placedClusters of those that fit. A partial step
	// counts touched clusters only.
	rowCount, placedClusters int
	// canComplete means that every fitting cluster has a row after the step.
	canComplete bool
	// wantsMore means that the placement can still choose a cluster that starts to fit.
	wantsMore bool
	standing  *schedule.ScoreThresholds
	bundle    state.Bundle
	reserve   []string
	failback  failbackState
	waits     connectionWait
	// waitsForTurn means that rows wait for their turn within the default bound, and isFrozen that they wait for the end of a freeze.
	waitsForTurn, isFrozen bool
}

// recordStep records a written step over all rows. again means that an awaited row changed
// during the step; the next step may be delayed for further changes.
func (x *bundleIndex) recordStep(v bundleView, w stepResult) (after time.Duration, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[v.uid]
	if e == nil || e.filter != v.filter {
		return 0, false
	}
	e.isStepping, e.rowCount, e.placedClusters = false, w.rowCount, w.placedClusters
	again = e.recordAwaitedClusters(w.output.BlockingClusters)
	if e.changedDuringStep = nil; w.output.PendingRemoval == nil {
		e.reportedPlan = ""
	}
	e.dueAt, e.isComplete, e.wantsMore = w.output.RequeueAt, w.canComplete && !e.filter.LimitsClusters() && !e.filter.HasGroups(), w.wantsMore
	x.recordScoreThresholds(e, w)
	if v.reserve == nil && !e.filter.HasGroups() {
		e.reserve, e.reserveAt = w.reserve, time.Now()
	}
	e.connectionWait, e.unreplacedCopies, e.waitsForTurn, e.isFrozen = w.waits, w.output.UnreplacedCopies, w.waitsForTurn, w.isFrozen
	x.setFailback(e, w.failback)
	if e.needsAllRows = e.wholeCount != v.wholeCount || !w.canComplete || !w.output.RowsIndependent; w.canComplete {
		e.removeTouchesBefore(v)
	}
	return e.awaitDelay(), again
}

// listFrozen returns the Bundles whose rows wait for the end of a freeze.
func (x *bundleIndex) listFrozen() (uids []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid, e := range x.entries {
		if e.isFrozen {
			uids = append(uids, uid)
		}
	}
	return uids
}

// recordAwaitedClusters records for which clusters' rows something waits, and reports whether one of
// them changed during the step.
func (e *bundleEntry) recordAwaitedClusters(clusters []string) (changed bool) {
	e.awaitedClusters = map[string]bool{}
	for _, c := range clusters {
		e.awaitedClusters[c] = true
		changed = changed || e.changedDuringStep[c]
	}
	return changed
}

// recordPartialStep records a written step over the touched rows.
func (x *bundleIndex) recordPartialStep(v bundleView, w stepResult) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[v.uid]
	if e == nil || e.filter != v.filter {
		return
	}
	e.rowCount, e.placedClusters = e.rowCount+w.rowCount, v.placedElsewhere+w.placedClusters
	if at := w.output.RequeueAt; !at.IsZero() && (e.dueAt.IsZero() || at.Before(e.dueAt)) {
		e.dueAt = at
	}
	e.removeTouchesBefore(v)
}

func (e *bundleEntry) touchedSet() map[string]bool {
	set := make(map[string]bool, len(e.touchedClusters))
	for c := range e.touchedClusters {
		set[c] = true
	}
	return set
}

// removeTouchesBefore removes the touches that the step has seen.
func (e *bundleEntry) removeTouchesBefore(v bundleView) {
	maps.DeleteFunc(e.touchedClusters, func(_ string, change uint64) bool { return change <= v.touchCount })
}

// touchCluster records that the cluster's part in a Bundle may have changed. after is how long a
// step may wait for further touches.
func (x *bundleIndex) touchCluster(uid, cluster string) (after time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0
	}
	e.touchCount++
	if e.touchedClusters[cluster] = e.touchCount; e.needsAllRows {
		return e.debounceFor(awaitDelayPerRow)
	}
	return min(e.debounceFor(touchDelayPerRow), maxTouchDelay)
}

// Delays of steps of Bundles with more than debounceFromRows rows, per row.
const (
	debounceFromRows = 200
	// awaitDelayPerRow: a step looks at all rows, so that many changes of a large Bundle share a
	// step.
	awaitDelayPerRow = 50 * time.Microsecond
	// touchDelayPerRow: a step costs the touched rows and writes whole slices; at most
	// maxTouchDelay in all.
	touchDelayPerRow = 100 * time.Microsecond
	maxTouchDelay    = time.Second
	// turnDelayPerRow: reports of the rows that change share the step that lets the next rows change, and its write; at
	// most maxTouchDelay in all.
	turnDelayPerRow = 10 * time.Millisecond
)

// awaitDelay returns how long a step for an awaited row may wait for further changes.
func (e *bundleEntry) awaitDelay() time.Duration {
	after := e.debounceFor(awaitDelayPerRow)
	if e.waitsForTurn {
		after = max(after, min(time.Duration(e.rowCount)*turnDelayPerRow, maxTouchDelay))
	}
	return after
}

func (e *bundleEntry) debounceFor(row time.Duration) time.Duration {
	if e.rowCount <= debounceFromRows {
		return 0
	}
	return time.Duration(e.rowCount) * row
}

// isAwaited reports whether the Bundle waits for one of the clusters, and how long a step may
// wait for further changes.
func (x *bundleIndex) isAwaited(uid string, clusters ...string) (after time.Duration, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil {
		return 0, true
	}
	if e.isStepping {
		if e.changedDuringStep == nil {
			e.changedDuringStep = map[string]bool{}
		}
		for _, c := range clusters {
			e.changedDuringStep[c] = true
		}
	}
	yes = slices.ContainsFunc(clusters, func(c string) bool { return e.awaitedClusters[c] })
	if yes {
		e.requireAllRows()
	}
	return e.awaitDelay(), yes
}

// recordReportedPlan records a held plan, and reports whether it is new.
func (x *bundleIndex) recordReportedPlan(uid, hash string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.reportedPlan == hash {
		return false
	}
	e.reportedPlan = hash
	return true
}

// recordReportedHeldBackPlan records a plan of recalled deletions, and reports whether it is new.
func (x *bundleIndex) recordReportedHeldBackPlan(uid, hash string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.reportedRecall == hash {
		return false
	}
	e.reportedRecall = hash
	return true
}

// recordReportedUnconfirmedPlan records a plan of removals that items state to confirm, and reports whether it is new.
func (x *bundleIndex) recordReportedUnconfirmedPlan(uid, hash string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.entries[uid]
	if e == nil || e.reportedUnconfirmed == hash {
		return false
	}
	e.reportedUnconfirmed = hash
	return true
}

func (x *bundleIndex) removeBundle(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.entries, uid)
	x.movable.removeBundle(uid)
	delete(x.connectionWaits, uid)
}

// replaceCluster records a cluster, and returns the one that it replaces.
func (x *bundleIndex) replaceCluster(c schedule.Cluster) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.knownClusters[c.Name]
	x.knownClusters[c.Name] = c
	x.recordUnschedulable(&c)
	x.fleet.markChanged(c.Name)
	return was, known
}

func (x *bundleIndex) removeCluster(name string) (was schedule.Cluster, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, known = x.knownClusters[name]
	delete(x.knownClusters, name)
	delete(x.unschedulable, name)
	delete(x.connected, name)
	delete(x.losses.at, name)
	x.fleet.markChanged(name)
	return was, known
}

// undividedPodsOf reads the pods of a revision's undivided items once.
func (x *bundleIndex) undividedPodsOf(revision string, content *atoll.Content) []schedule.PodDemand {
	if content == nil {
		return nil
	}
	if pods, ok := x.undividedPodCache.Get(revision); ok {
		return pods.([]schedule.PodDemand)
	}
	pods := schedule.UndividedPodsOf(content)
	x.undividedPodCache.Add(revision, pods)
	return pods
}

// workloadsOf reads the workloads of a revision once.
func (x *bundleIndex) workloadsOf(revision string, content *atoll.Content) ([]schedule.Workload, error) {
	if content == nil {
		return nil, nil
	}
	if w, ok := x.workloadCache.Get(revision); ok {
		return w.([]schedule.Workload), nil
	}
	w, err := schedule.WorkloadsOf(content)
	if err == nil {
		x.workloadCache.Add(revision, w)
	}
	return w, err
}
