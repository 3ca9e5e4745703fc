package apply

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/wakeup"
)

// Store is where manifests and records lie.
type Store interface {
	PutBundle(ctx context.Context, b store.Bundle) error
	DropBundle(ctx context.Context, uid string) error
	PutRecords(ctx context.Context, shard string, records []ownership.Record) error
}

// Watch watches the applied objects. Its methods do not block.
type Watch interface {
	// Start watching a kind; calling it again costs nothing.
	Start(member.Resource)
	// StartUnfiltered starts watching all objects of a kind, with Atoll's label and without it; calling
	// it again costs nothing.
	StartUnfiltered(member.Resource)
	// StopUnfiltered stops watching the objects of a kind without Atoll's label.
	StopUnfiltered(group, kind string)
	// RelistKind lists all objects of a kind again, if the kind is watched.
	RelistKind(group, kind string)
	// Stop watching a kind of which nothing is left.
	Stop(group, kind string)
}

// Lease of the member, which one agent holds.
type Lease interface {
	// IsHeld reports, from memory, whether this agent is the member's only applier; while it
	// is not, nothing is done.
	IsHeld() bool
	// ConfirmHeld reads the lease from the member; it is called before deletions.
	ConfirmHeld(ctx context.Context) bool
}

// Options of an Engine. All are required.
type Options struct {
	Client *member.Client
	Store  Store
	Lease  Lease
	Watch  Watch
	// Policy of the member's administrator, as it is now.
	Policy func() *policy.Policy
	// Changed is called when the status of a Bundle may have changed. It must not block and must
	// not call the Engine.
	Changed func(bundle string)
	Metrics *Metrics
	Log     *slog.Logger
}

// MemberApplier applies.
type MemberApplier struct {
	o        Options
	upserts  sync.Mutex
	flushing sync.Mutex
	slots    chan struct{}
	wake     chan struct{}

	mu    sync.Mutex
	book  *ownership.OwnershipRecords
	views map[atoll.ItemKey]view
	tasks map[atoll.ItemKey]*task
	// scaled are the objects that HPAs of each Bundle target.
	scaled map[string]map[atoll.ItemKey]bool
	// interpreters are the interpreters of each Bundle that has some.
	interpreters map[string]script.Interpreters
	// rules judge single objects, by Bundle and key. Bundles without rules are absent.
	rules map[string]map[atoll.ItemKey]*assess.Rules
	// gates hold items of later waves and phases, by Bundle. Bundles without hooks whose items are of one wave are absent.
	gates map[string]*ownership.WaveGate
	// hookMarks are how far the hooks of each Bundle were when they were last marked as due.
	hookMarks map[string]hookMark
	// removals are the Bundles whose removal runs hooks.
	removals map[string]*hookedRemoval
	// observed is what was read of the objects that are observed instead of written.
	observed        map[atoll.ItemKey]*observation
	observeInterval time.Duration
	// foreign are namespaces that exist and are not ours.
	foreign map[string]bool
	access  *accessCache
	// forbidden holds, for applied objects, why they may not be applied any more.
	forbidden  map[atoll.ItemKey]string
	discovered time.Time
}

// task is the work on one key.
type task struct {
	// due: not before at.
	due bool
	at  time.Time
	// busy: a goroutine works on it.
	busy bool
	// intended: that the object is to be made is stored.
	intended bool
	// check reads whether the object exists, judges it again, and corrects it even though it was
	// applied.
	check, judge, correct bool
	// recreate is the hash of the item for which the object is deleted and created again; empty: none.
	recreate string
	// weigh whether the member's administrator allows it.
	weigh       bool
	failures    int
	failure     *Failure
	corrections correctionHistory
}

// New returns an Engine that holds what was stored.
func New(o Options, stored store.StoredContents) *MemberApplier {
	e := &MemberApplier{
		o: o, slots: make(chan struct{}, maxParallel), wake: make(chan struct{}, 1),
		book: ownership.NewOwnershipRecords(), views: map[atoll.ItemKey]view{}, tasks: map[atoll.ItemKey]*task{},
		scaled: map[string]map[atoll.ItemKey]bool{}, interpreters: map[string]script.Interpreters{}, rules: map[string]map[atoll.ItemKey]*assess.Rules{},
		gates: map[string]*ownership.WaveGate{}, hookMarks: map[string]hookMark{}, removals: map[string]*hookedRemoval{}, observed: map[atoll.ItemKey]*observation{}, observeInterval: observeInterval,
		foreign: map[string]bool{}, forbidden: map[atoll.ItemKey]string{}, access: newAccessCache(o.Client, o.Metrics),
	}
	for _, r := range stored.Records {
		e.book.RestoreRecord(r)
	}
	for uid, gone := range stored.Reports.Gone {
		e.book.RememberRemovedBundle(uid, gone.At)
	}
	// Those that go come first, so that objects of the others are not marked to go.
	for _, going := range []bool{true, false} {
		for _, b := range stored.Bundles {
			if b.Holding.Manifest.Remove == going {
				e.noteRemoval(&b.Holding, b.Position)
				e.foldHolding(b.Holding, compileRules(&b.Holding))
			}
		}
	}
	for _, key := range e.book.RecordedKeys() {
		e.ensureTask(key).weigh = true
		e.markDue(key)
	}
	e.book.TakeChangedBundles() // all Bundles are reported at the start anyway
	return e
}

// UpsertManifest stores a Bundle's manifest and starts to apply it. The manifest's objects are
// complete. A manifest of a lower generation than the stored one is ignored.
func (e *MemberApplier) UpsertManifest(ctx context.Context, m atoll.Manifest, at store.Position) error {
	e.upserts.Lock()
	defer e.upserts.Unlock()
	e.mu.Lock()
	prev, rulesBefore, install := e.book.HoldingOf(m.Bundle), e.rules[m.Bundle], e.book.IsInstall(&m)
	e.mu.Unlock()
	if prev != nil && prev.Manifest.Generation > m.Generation {
		return nil
	}
	if prev != nil && prev.DropsServiceAccount(&m) && e.hasUnsavedShards() {
		if err := e.storeChangedRecords(ctx); err != nil { // after a crash the records alone hold the accounts
			return err
		}
	}
	holding := ownership.Merge(prev, m)
	holding.Install = install
	rules := compileRules(&holding)
	if err := e.o.Store.PutBundle(ctx, store.Bundle{Holding: holding, Position: at}); err != nil {
		return err
	}
	e.mu.Lock()
	e.noteRemoval(&holding, at)
	for _, key := range e.foldHolding(holding, rules) {
		e.markDue(key)
	}
	e.markChangedNamespacesDue(prev, &m)
	told, whole := e.book.TakeChangedBundles(), e.rejudgeOnInterpreterChange(prev, &holding)
	whole = append(whole, e.rejudgeOnRuleChange(m.Bundle, rulesBefore)...)
	e.openWaves(told...)
	e.mu.Unlock()
	for _, gk := range whole {
		e.o.Watch.RelistKind(gk.Group, gk.Kind)
	}
	e.o.Changed(m.Bundle)
	e.reportChanged(told)
	e.wakeRun()
	return nil
}

// foldHolding takes the holding, with its rules, into the book and gives the keys that it touched.
func (e *MemberApplier) foldHolding(h ownership.BundleHolding, rules map[atoll.ItemKey]*assess.Rules) []atoll.ItemKey {
	before := e.observedKeysOfBundle(h.Manifest.Bundle)
	keys := e.book.FoldHolding(h)
	for _, key := range keys {
		if key.IsNamespace() && len(e.book.BundlesWithNamespace(key.Name)) > 0 {
			e.intendNamespace(key.Name)
		}
	}
	e.dropObserved(before, keys)
	e.setInterpreters(h.Manifest.Bundle, h.Manifest.Interpreters)
	e.setRules(h.Manifest.Bundle, rules)
	keys = append(keys, e.updateHPATargets(h)...)
	e.setGate(h.Manifest.Bundle)
	return keys
}

// ForgetRemovedBundle drops a Bundle whose removal is done and reported.
func (e *MemberApplier) ForgetRemovedBundle(ctx context.Context, bundle string, now time.Time) error {
	e.upserts.Lock()
	defer e.upserts.Unlock()
	e.mu.Lock()
	removed := e.book.IsBundleRemovalDone(bundle)
	e.mu.Unlock()
	if !removed {
		return nil
	}
	if err := e.o.Store.DropBundle(ctx, bundle); err != nil {
		return err
	}
	e.mu.Lock()
	for _, key := range e.book.ForgetBundle(bundle, now.Unix()) {
		e.markDue(key)
	}
	delete(e.scaled, bundle)
	delete(e.interpreters, bundle)
	delete(e.rules, bundle)
	delete(e.gates, bundle)
	delete(e.hookMarks, bundle)
	delete(e.removals, bundle)
	told := e.book.TakeChangedBundles()
	e.openWaves(told...)
	e.mu.Unlock()
	e.reportChanged(told)
	e.wakeRun()
	return nil
}

// ObjectByHash finds an object's JSON by its item's hash, or an interpreter's spec by its own.
func (e *MemberApplier) ObjectByHash(hash string) (json.RawMessage, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.ObjectByHash(hash)
}

// AppliedUID returns the UID of the object that is recorded under a key, empty while it is not
// known; false where none is.
func (e *MemberApplier) AppliedUID(key atoll.ItemKey) (uid string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.ObjectUID(key)
}

// NamespacesWithRecords returns the namespaces in which something is recorded, in no order.
func (e *MemberApplier) NamespacesWithRecords() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.NamespacesWithRecords()
}

// CarriedOut lists the tombstones of the Bundle's manifest that are carried out.
func (e *MemberApplier) CarriedOut(bundle string) (out []atoll.Tombstone) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.book.HoldingOf(bundle)
	if h == nil {
		return nil
	}
	done := e.book.CompletedTombstoneIDs(bundle)
	for _, t := range h.Manifest.Tombstones {
		// Done has the manifest's order.
		if len(done) > 0 && done[0] == ownership.TombstoneID(t) {
			out, done = append(out, t), done[1:]
		}
	}
	return out
}

// IsWantedAgain reports whether a removed Bundle exists again. With a tombstone, it reports whether
// an item of exactly that template exists again, in any Bundle.
func (e *MemberApplier) IsWantedAgain(bundle string, t *atoll.Tombstone) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t == nil {
		h := e.book.HoldingOf(bundle)
		return h != nil && !h.Manifest.Remove
	}
	return e.book.WantsTemplate(t.Key, t.UID)
}

// incompleteContent takes the place of a content hash: no manifest has it, so that the hub sends another one.
const incompleteContent = "incomplete"

// ReceivedManifests lists every Bundle that is held, with its generation and content hash. The hash is
// incompleteContent where an older agent stored the manifest without a part.
func (e *MemberApplier) ReceivedManifests() []ReceivedManifest {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []ReceivedManifest
	for _, uid := range e.book.BundleUIDs() {
		h := e.book.HoldingOf(uid)
		held := ReceivedManifest{Bundle: uid, Generation: h.Manifest.Generation, Content: h.Manifest.Content}
		if h.HasLostFields() {
			held.Content = incompleteContent
		}
		out = append(out, held)
	}
	return out
}

// ReceivedManifest is a Bundle that is held.
type ReceivedManifest struct {
	Bundle     string
	Generation int64
	Content    string
}

// ReconcileListed takes the objects that a starting watch found. All other recorded objects of the
// kind are searched.
func (e *MemberApplier) ReconcileListed(group, kind string, found map[atoll.ItemKey]bool) {
	e.mu.Lock()
	for _, key := range e.book.RecordedKeys() {
		if key.Group != group || key.Kind != kind || found[key] {
			continue
		}
		if r, _ := e.book.Record(key); r.UID != "" {
			e.ensureTask(key).check = true
			e.markDue(key)
		}
	}
	e.mu.Unlock()
	e.wakeRun()
}

// APIsChanged is called when the member serves other APIs than before.
func (e *MemberApplier) APIsChanged() {
	e.watchAll()
	e.mu.Lock()
	e.discovered = time.Now()
	for key, t := range e.tasks {
		if t.failure != nil && t.failure.Reason == atoll.ReasonNotServed {
			t.failures = 0
			e.markDue(key)
		}
	}
	e.mu.Unlock()
	e.wakeRun()
}

// RetryTransportFailures retries everything that failed at once, as when the member's API is back.
func (e *MemberApplier) RetryTransportFailures() {
	e.mu.Lock()
	for key, t := range e.tasks {
		if t.failure != nil && t.failure.Transport {
			t.failures = 0
			e.markDue(key)
		}
	}
	e.mu.Unlock()
	e.wakeRun()
}

// watchAll watches every kind that is recorded. Objects of kinds that the member
// does not serve went with their definition; that is looked into.
func (e *MemberApplier) watchAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	apis := e.o.Client.APIs()
	for _, key := range e.book.RecordedKeys() {
		r, _ := e.book.Record(key)
		if r.UID == "" {
			continue
		}
		if res, served := apis.LookupKind(schema.FromAPIVersionAndKind(apiVersion(r), key.Kind)); served {
			e.o.Watch.Start(res)
		} else {
			e.ensureTask(key).check = true
			e.markDueUnlessBackingOff(key)
		}
	}
}

// ensureTask returns the task of the key. The caller holds mu.
func (e *MemberApplier) ensureTask(key atoll.ItemKey) *task {
	t := e.tasks[key]
	if t == nil {
		t = &task{}
		e.tasks[key] = t
	}
	return t
}

// markDue marks the key for the next pass. The caller holds mu.
func (e *MemberApplier) markDue(key atoll.ItemKey) {
	t := e.ensureTask(key)
	t.due, t.at = true, time.Time{}
}

// markDueUnlessBackingOff marks the key as due, unless the key waits for its next try. The caller
// holds mu.
func (e *MemberApplier) markDueUnlessBackingOff(key atoll.ItemKey) {
	if t := e.ensureTask(key); t.failure == nil || !t.due {
		e.markDue(key)
	}
}

// wakeRun lets Run check for work.
func (e *MemberApplier) wakeRun() { wakeup.WakeReader(e.wake) }

// reportChanged reports that the status of these Bundles may have changed. The caller does not hold mu.
func (e *MemberApplier) reportChanged(bundles []string) {
	for _, uid := range bundles {
		e.o.Changed(uid)
	}
}
