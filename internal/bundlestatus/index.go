package bundlestatus

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// bundleIndex stores which Bundles hold which templates, and what was last seen of
// what, so that only news is looked at. All methods may be called concurrently.
type bundleIndex struct {
	mu sync.Mutex
	// holds: by template, the Bundles whose latest content has it, as an item or as
	// a tombstone.
	holds   map[atoll.ItemKey]map[string]hold
	bundles map[string]*indexed
	// templates as last seen.
	templates map[atoll.ItemKey]seenTemplate
	clusters  map[string]seenCluster
	edits     map[string]seenBundle
	// unlooked are Bundles that were not looked at yet.
	unlooked map[string]struct{}
	read     *lru.Cache // Revision name → its items' versions
	// stays: by namespace, the UIDs under which Vacant rows are kept.
	stays map[string]map[string]bool
}

type hold struct {
	item, dependency bool
}

type indexed struct {
	latest  string // Revision of which the content is
	content *atoll.Content
	rows    int
	waits   bool
	// stays is the namespace, if the rows record where it stays.
	stays string
}

type seenTemplate struct {
	uid        string
	generation int64
	version    string // for kinds without generation
	leaving    bool
}

type seenCluster struct {
	reachable, online bool
	labels            map[string]string
	timeZone          string
}

type seenBundle struct {
	generation int64
	deleting   bool
	// unbound is what of it cannot be sent, which bind reports and the Bundle waits for.
	unbound string
	// gates are the verdicts of its rollout, and cut is its division into automatic stages, which the placer writes.
	gates, cut string
}

func newBundleIndex() *bundleIndex {
	return &bundleIndex{
		holds: map[atoll.ItemKey]map[string]hold{}, bundles: map[string]*indexed{},
		templates: map[atoll.ItemKey]seenTemplate{}, clusters: map[string]seenCluster{}, edits: map[string]seenBundle{},
		stays: map[string]map[string]bool{}, unlooked: map[string]struct{}{}, read: lru.New(readRevisions),
	}
}

// contentOf returns the content of a Revision, if it is the latest one of the Bundle as last looked at.
func (x *bundleIndex) contentOf(uid, revision string) *atoll.Content {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.bundles[uid]; b != nil && b.latest == revision {
		return b.content
	}
	return nil
}

// readRevisions are kept read.
const readRevisions = 2048

// itemVersions returns the versions of a Revision's items; shared, not to be changed.
func (x *bundleIndex) itemVersions(revision string, c *atoll.Content) map[atoll.ItemKey]version {
	if v, ok := x.read.Get(revision); ok {
		return v.(map[atoll.ItemKey]version)
	}
	out := make(map[atoll.ItemKey]version, len(c.Items))
	for i := range c.Items {
		out[c.Items[i].Key] = version{c.Items[i].UID, c.Items[i].Hash}
	}
	x.read.Add(revision, out)
	return out
}

// dividedWorkloads returns the workloads of a Revision that are divided; shared, not to be changed. Content that
// cannot be read has none: place reports it.
func (x *bundleIndex) dividedWorkloads(revision string, c *atoll.Content) []schedule.Workload {
	if c == nil {
		return nil
	}
	key := "divided " + revision
	if v, ok := x.read.Get(key); ok {
		return v.([]schedule.Workload)
	}
	out, err := schedule.WorkloadsOf(c)
	if err != nil {
		out = nil
	}
	x.read.Add(key, out)
	return out
}

// markUnreconciled marks a Bundle that exists or has rows as not reconciled yet.
func (x *bundleIndex) markUnreconciled(uid string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.bundles[uid] == nil {
		x.unlooked[uid] = struct{}{}
	}
}

// clearUnreconciled removes all marks of Bundles that are not reconciled yet, before all are
// enqueued again.
func (x *bundleIndex) clearUnreconciled() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.unlooked)
}

// setBundle sets what a Bundle holds now; unheld are templates that it held and that now no
// Bundle holds.
func (x *bundleIndex) setBundle(s *bundleSnapshot) (unheld []atoll.ItemKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.unlooked, s.uid)
	old := x.bundles[s.uid]
	if old != nil && old.content == s.content {
		old.rows, old.latest = s.total, s.latestRevision()
		return nil
	}
	dropped := x.clearBundle(s.uid)
	x.bundles[s.uid] = &indexed{latest: s.latestRevision(), content: s.content, rows: s.total}
	if s.isVacantNamespace() {
		x.recordVacantNamespace(s.rows[0].Bundle)
	}
	if s.content != nil {
		for _, t := range s.content.Tombstones {
			x.addHolder(t.Key, s.uid, hold{})
		}
		for i := range s.content.Items {
			x.addHolder(s.content.Items[i].Key, s.uid, hold{item: true, dependency: s.content.Items[i].Dependency})
		}
	}
	return slices.DeleteFunc(dropped, func(key atoll.ItemKey) bool { return len(x.holds[key]) > 0 })
}

func (x *bundleIndex) addHolder(key atoll.ItemKey, uid string, h hold) {
	if x.holds[key] == nil {
		x.holds[key] = map[string]hold{}
	}
	x.holds[key][uid] = h
}

// clearBundle takes a Bundle out and lists templates that then no Bundle holds.
func (x *bundleIndex) clearBundle(uid string) (unheld []atoll.ItemKey) {
	b := x.bundles[uid]
	if b == nil || b.content == nil {
		return nil
	}
	drop := func(key atoll.ItemKey) {
		if by := x.holds[key]; by != nil {
			if delete(by, uid); len(by) == 0 {
				delete(x.holds, key)
				delete(x.templates, key)
				unheld = append(unheld, key)
			}
		}
	}
	for _, t := range b.content.Tombstones {
		drop(t.Key)
	}
	for i := range b.content.Items {
		drop(b.content.Items[i].Key)
	}
	return unheld
}

// dropBundleMemo drops a Bundle; unheld are templates that now no Bundle holds.
func (x *bundleIndex) dropBundleMemo(uid string) (unheld []atoll.ItemKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	unheld = x.clearBundle(uid)
	if b := x.bundles[uid]; b != nil && b.stays != "" {
		if delete(x.stays[b.stays], uid); len(x.stays[b.stays]) == 0 {
			delete(x.stays, b.stays)
		}
	}
	delete(x.bundles, uid)
	delete(x.edits, uid)
	delete(x.unlooked, uid)
	return unheld
}

// recordVacantNamespace notes that rows record where a namespace stays.
func (x *bundleIndex) recordVacantNamespace(ref enginev1.BundleRef) {
	x.bundles[ref.UID].stays = ref.Namespace
	if x.stays[ref.Namespace] == nil {
		x.stays[ref.Namespace] = map[string]bool{}
	}
	x.stays[ref.Namespace][ref.UID] = true
}

// vacantNamespaceUIDs lists the UIDs of namespaces of the name that stay somewhere.
func (x *bundleIndex) vacantNamespaceUIDs(namespace string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.stays[namespace]))
}

// rowCount returns the number of rows that the Bundle had when it was last looked at.
func (x *bundleIndex) rowCount(uid string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.bundles[uid]; b != nil {
		return b.rows
	}
	return 0
}

// allReconciled reports whether every Bundle was looked at.
func (x *bundleIndex) allReconciled() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.unlooked) == 0
}

// templateHolders returns the holders of a template, by UID.
func (x *bundleIndex) templateHolders(key atoll.ItemKey) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]string, 0, len(x.holds[key]))
	for uid := range x.holds[key] {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// isStatusAuthor reports whether a Bundle is the one whose rows make the template's status:
// one that its policy chose it for before those that only need it.
func (x *bundleIndex) isStatusAuthor(key atoll.ItemKey, uid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	mine := x.holds[key][uid]
	for other, h := range x.holds[key] {
		if other == uid || !h.item {
			continue
		}
		if mine.dependency && !h.dependency || mine.dependency == h.dependency && other < uid {
			return false
		}
	}
	return mine.item
}

// recordTemplateChange reports whether a template is not as it was last seen, its status apart.
func (x *bundleIndex) recordTemplateChange(key atoll.ItemKey, t *unstructured.Unstructured) bool {
	now := seenTemplate{uid: string(t.GetUID()), generation: t.GetGeneration(), leaving: isDeletionHeldByAtoll(t)}
	if now.generation == 0 {
		now.version = t.GetResourceVersion()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.templates[key] == now {
		return false
	}
	if len(x.holds[key]) > 0 {
		x.templates[key] = now
	}
	return true
}

// recordLinkChange reports whether a cluster can be reached, holds a stream, or has labels or a time zone other than at the
// last look. It reads under the lock: of two concurrent readers the later one would count, though
// it may have read before.
func (x *bundleIndex) recordLinkChange(uid string, look func(uid string) seenCluster) (reach, stream, relabelled bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, seen := x.clusters[uid]
	is := look(uid)
	x.clusters[uid] = is
	return !seen || was.reachable != is.reachable, !seen || was.online != is.online, seen && (was.timeZone != is.timeZone || !maps.Equal(was.labels, is.labels))
}

// setWaitingRemoval stores whether a removal waits in the Bundle.
func (x *bundleIndex) setWaitingRemoval(uid string, waits bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b := x.bundles[uid]; b != nil {
		b.waits = waits
	}
}

// hasWaitingRemoval reports whether a removal waits in the Bundle; true for one that was not
// looked at yet.
func (x *bundleIndex) hasWaitingRemoval(uid string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.bundles[uid]
	return b == nil || b.waits
}

// recordBundleChange reports whether a Bundle is not as it was last seen, apart from the status that
// summarise itself writes.
func (x *bundleIndex) recordBundleChange(b state.Bundle) bool {
	now := seenBundle{generation: b.Meta.Generation, deleting: b.Meta.DeletionTimestamp != nil}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleBound); c != nil && c.Status == metav1.ConditionFalse {
		now.unbound = c.Message
	}
	if r := b.Status.Rollout; r != nil {
		for _, g := range r.Gates {
			now.gates += g.Stage + " " + g.Name + " " + g.Revision + " " + string(g.State) + " " + g.Value + ";"
		}
	}
	if cut := b.Status.Rollout.GetStageCut(); cut != nil {
		now.cut = fmt.Sprint(cut.Revision, " ", cut.Hash, " ", cut.At, cut.Thresholds)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	was, seen := x.edits[b.Ref.UID]
	x.edits[b.Ref.UID] = now
	return !seen || was != now
}
