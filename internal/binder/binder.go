package binder

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/tracing"
	"atoll.dev/atoll/internal/userfields"
)

// Templates is the table of every object on the hub that can be placed.
type Templates interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	InNamespace(ns string) []*unstructured.Unstructured
	ListOfKind(gk schema.GroupKind, ns string) []*unstructured.Unstructured
	Subscribe(func(atoll.ItemKey))
}

// Kinds are the kinds of the templates, and which of them are read.
type Kinds interface {
	IsSynced(group, kind string) bool
	UnreadReason(group, kind string) error
	IsNamespaced(group, kind string) (namespaced, known bool)
	ResourceOfKey(key atoll.ItemKey) (schema.GroupVersionResource, bool)
	SubscribeSync(func())
}

// Namespaces is the table of the hub's namespaces.
type Namespaces interface {
	Get(name string) (*corev1.Namespace, bool)
	List() []string
	Subscribe(func(name string))
}

// Policies is the table of policies. Its events include those about Overrides.
type Policies interface {
	PropagationPolicies(ns string) []*v1alpha1.PropagationPolicy
	GetPropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool)
	ClusterPropagationPolicies() []*v1alpha1.ClusterPropagationPolicy
	GetClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool)
	Subscribe(func(kind, ns, name string))
}

// Overrides are the policies and interpreters that change what clusters get.
type Overrides interface {
	OverridePolicies(ns string) []*v1alpha1.OverridePolicy
	ClusterOverridePolicies() []*v1alpha1.ClusterOverridePolicy
	InterpreterLibrary() *script.Library
}

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	GetByName(ns, name string) (state.Bundle, bool)
	List() []state.Bundle
	Put(obj client.Object)
	Subscribe(func(uid string))
}

// Rows is the table of rows.
type Rows interface {
	ListOfBundle(uid string) []state.Row
	Subscribe(func(bundleUID string, clusters []string))
}

// Settings are the hub's settings.
type Settings interface {
	// DefaultPlacement is where objects go that nothing else places; nil: they stay on the hub.
	DefaultPlacement() *v1alpha1.DefaultPlacement
	// ChildPlacement is where objects go that controllers on the hub make of placed objects.
	ChildPlacement() v1alpha1.ChildPlacement
	// CreatesEmptyNamespaces reports whether placed namespaces without objects appear in their clusters.
	CreatesEmptyNamespaces() bool
	// Freeze returns the freeze of all changes, which may have ended; nil: there is none.
	Freeze() *v1alpha1.ChangeFreeze
	Subscribe(func(name string))
}

// Clusters is the table of members.
type Clusters interface {
	IsOnline(uid string) bool
	Subscribe(func(name string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	LatestOfBundle(bundleUID string) (*enginev1.Revision, bool)
	GetContent(ctx context.Context, name string) (*atoll.Content, error)
	CreateRevision(ctx context.Context, ref enginev1.BundleRef, content *atoll.Content) (string, error)
}

// Options of a Binder. All are required but Placements, Settings, Events, PutFinalizer, OnRevision,
// Fingerprints and ReadOnly.
type Options struct {
	Templates  Templates
	Kinds      Kinds
	Namespaces Namespaces
	Policies   Policies
	Overrides  Overrides
	// Placements to which policies refer; nil: there are none.
	Placements Placements
	// Settings with the default placement; nil: there is none.
	Settings Settings
	Bundles  Bundles
	Rows     Rows
	Clusters Clusters
	// Events about templates; nil: none are recorded.
	Events    Events
	Revisions Revisions
	// Client writes Bundles, the status of policies and the finalizers of templates.
	Client client.Client
	// PutFinalizer adds a finalizer to a template of the table, more cheaply than Client does.
	// done is false when it cannot; nil: Client adds every finalizer.
	PutFinalizer func(ctx context.Context, t *unstructured.Unstructured, finalizer string) (done bool, err error)
	// Defaults of the API that this hub serves.
	Defaults userfields.Defaulter
	// OnRevision is called with each Revision that the Binder wrote, and when it first saw a change
	// of what the Revision is made of; nil: it is not called.
	OnRevision func(bundleUID, revision string, changed time.Time)
	// Fingerprints that other readers share; nil: the Binder makes its own.
	Fingerprints *FingerprintCache
	Log          *slog.Logger
	// ReadOnly makes a Binder for a hub that does not lead. It plans and answers queries,
	// follows the writes of the leader, and writes nothing.
	ReadOnly bool
	// Traces of changes; nil: none are recorded.
	Traces *tracing.Tracer
}

const (
	// bundleWorkers reconcile Bundles at the same time; they mostly wait for the store.
	bundleWorkers = 32
	// debounceDelay is how long a Bundle stays untouched before it is reconciled. A Bundle that was
	// untouched before is reconciled at once when it is one object, or has a Revision with objects: clusters
	// of a new Bundle are chosen for the whole of it.
	// debounceMaximum is the longest that a Bundle waits although it keeps being touched.
	debounceDelay   = 200 * time.Millisecond
	debounceMaximum = 2 * time.Second
)

// fieldOwner is the field manager of all writes of a Binder.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// Binder keeps Bundles and their Revisions in line with templates and policies.
type Binder struct {
	Options
	index     policyIndex
	ownership *ownershipIndex
	events    *eventQueue
	// eventPauses has the last pause of each event that panicked. Only Run uses it.
	eventPauses       map[tableEvent]time.Duration
	bundleQueue       *reconcile.Loop[policymatch.BundleID]
	touchBundle       func(policymatch.BundleID)
	policyStatus      *policyStatusWriter
	unreadableKinds   pendingSince[schema.GroupKind]
	missingNamespaces pendingSince[policymatch.BundleID]
	// missingPlacements holds Bundles whose Placement does not exist.
	missingPlacements pendingSince[policymatch.BundleID]
	// missingOverrides holds Bundles whose first Revision waits for override policies.
	missingOverrides pendingSince[policymatch.BundleID]
	// touched holds Bundles that changed and are not reconciled yet.
	touched pendingSince[policymatch.BundleID]
	loaded  atomic.Bool
	// unselected writes the conditions of templates that nothing places.
	unselected *reconcile.Loop[atoll.ItemKey]

	// Only the goroutine that handles events uses these.
	overrideSelections     map[PolicyKey]objectSet         // what override policies select
	lastInterpreters       *script.Library                 // interpreters at the last event
	lastDefaultPlacement   *v1alpha1.DefaultPlacement      // of the hub, at the last event
	lastChildPlacement     v1alpha1.ChildPlacement         // of the hub, at the last event
	lastEmptyNamespaces    bool                            // created by the hub, at the last event
	warnedParents          map[atoll.ItemKey]string        // UIDs of parents with an Event about two controllers
	lastClustersAnnotation map[string]string               // by namespace, at the last event
	lastNamespaceMeta      map[string]string               // namespaceFingerprint by namespace, at the last event
	lastTemplates          map[atoll.ItemKey]templateState // templates at the last event
	lastRecallDecision     map[string]string               // about held removals, by Bundle UID
}

// New makes a Binder over tables that can still be empty. It subscribes to the tables at once;
// Run acts on the changes.
func New(o Options) *Binder {
	if o.Fingerprints == nil {
		o.Fingerprints = &FingerprintCache{}
	}
	if o.OnRevision == nil {
		o.OnRevision = func(string, string, time.Time) {}
	}
	b := &Binder{
		Options: o, ownership: newOwnershipIndex(), events: newEventQueue(),
		overrideSelections: map[PolicyKey]objectSet{}, lastClustersAnnotation: map[string]string{}, lastNamespaceMeta: map[string]string{}, lastTemplates: map[atoll.ItemKey]templateState{},
		lastRecallDecision: map[string]string{}, warnedParents: map[atoll.ItemKey]string{}, eventPauses: map[tableEvent]time.Duration{},
	}
	b.bundleQueue = reconcile.New(reconcile.Options[policymatch.BundleID]{
		Name: "bind", Reconcile: b.reconcileBundle, Failed: b.logFailure, Panicked: b.reportPanic, Workers: bundleWorkers, Debounce: debounceDelay, MaxDebounce: debounceMaximum,
	})
	b.touchBundle = func(id policymatch.BundleID) {
		b.touched.startWait(id, time.Now())
		if b.ownership.isSingleObjectBundle(id) || b.hasRevision(id) && !b.ownership.holdsOnlyNamespace(id) {
			b.bundleQueue.EnqueueAtOnce(id)
		} else {
			b.bundleQueue.EnqueueDebounced(id)
		}
	}
	b.policyStatus, b.unselected = newPolicyStatusWriter(b), newUnselectedLoop(b)
	o.Templates.Subscribe(func(key atoll.ItemKey) {
		if o.Kinds.IsSynced(key.Group, key.Kind) {
			b.events.put(tableEvent{template: key})
		} else {
			b.events.putRechecks(tableEvent{template: key})
		}
	})
	o.Kinds.SubscribeSync(func() { b.events.put(tableEvent{kindsSynced: true}) })
	o.Namespaces.Subscribe(func(name string) { b.events.put(tableEvent{namespace: name}) })
	o.Policies.Subscribe(func(kind, ns, name string) { b.events.put(tableEvent{policy: PolicyKey{kind, ns, name}}) })
	if o.Placements != nil {
		o.Placements.Subscribe(func(key types.NamespacedName) { b.events.put(tableEvent{placement: key}) })
	}
	if o.Settings != nil {
		o.Settings.Subscribe(func(string) { b.events.put(tableEvent{settingsChanged: true}) })
	}
	o.Bundles.Subscribe(func(uid string) { b.events.put(tableEvent{bundleUID: uid}) })
	o.Rows.Subscribe(func(uid string, _ []string) { b.events.put(tableEvent{rowsOfBundle: uid}) })
	o.Clusters.Subscribe(func(string) { b.events.put(tableEvent{clustersChanged: true}) })
	return b
}

// Run binds until ctx ends. The typed tables must have their first lists; kinds of templates may
// sync later. Errors of single Bundles are logged and retried. Run returns an error only when it
// cannot read the contents of the Bundles.
func (b *Binder) Run(ctx context.Context) error {
	if err := b.loadInitialState(ctx); err != nil {
		return err
	}
	b.loaded.Store(true)
	var wg sync.WaitGroup
	b.bundleQueue.AcceptKeys()
	wg.Go(func() { b.bundleQueue.Run(ctx, nil) })
	if !b.ReadOnly {
		b.policyStatus.loop.AcceptKeys()
		b.policyStatus.enqueueOverridePolicies()
		wg.Go(func() { b.policyStatus.loop.Run(ctx, nil) })
		b.unselected.AcceptKeys()
		wg.Go(func() { b.unselected.Run(ctx, nil) })
	}
	for {
		e, ok := b.events.waitForNext(ctx)
		if !ok {
			break
		}
		b.handleEventContainingPanic(e)
	}
	b.events.close()
	wg.Wait()
	return nil
}

// loadInitialState reads the contents of Bundles and the policies. It queues a recheck of every Bundle
// and template behind the changes that follow.
func (b *Binder) loadInitialState(ctx context.Context) error {
	b.events.reset()
	for _, bundle := range b.Bundles.List() {
		if err := b.storeLatestContent(ctx, bundle); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		b.events.putRechecks(tableEvent{bundleUID: bundle.Ref.UID})
	}
	b.index.setClusterPolicies(b.Policies.ClusterPropagationPolicies())
	b.lastDefaultPlacement, b.lastChildPlacement, b.lastEmptyNamespaces = b.defaultPlacement(), b.childPlacement(), b.createsEmptyNamespaces()
	b.index.setHubDefault(b.lastDefaultPlacement)
	for _, p := range b.Overrides.ClusterOverridePolicies() {
		b.overrideSelections[PolicyKey{kindClusterOverridePolicy, "", p.Name}] = selectedByOverride(&p.Spec.OverrideSpec)
	}
	b.lastInterpreters = b.Overrides.InterpreterLibrary()
	for _, ns := range b.Namespaces.List() {
		b.index.setNamespacePolicies(ns, b.Policies.PropagationPolicies(ns))
		b.lastClustersAnnotation[ns] = b.clustersAnnotationState(ns)
		b.lastNamespaceMeta[ns] = b.namespaceFingerprint(ns)
		for _, p := range b.Overrides.OverridePolicies(ns) {
			b.overrideSelections[PolicyKey{kindOverridePolicy, ns, p.Name}] = selectedByOverride(&p.Spec)
		}
	}
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.InNamespace(ns) {
			b.events.putRechecks(tableEvent{template: policymatch.ItemKeyOf(t)})
		}
	}
	return nil
}

// storeLatestContent records the content of a Bundle's latest Revision.
func (b *Binder) storeLatestContent(ctx context.Context, bundle state.Bundle) error {
	id := policymatch.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name}
	content, number, err := b.latestContent(ctx, bundle.Ref.UID)
	if err != nil {
		return fmt.Errorf("read the latest content of bundle %s: %w", id, err)
	}
	if content == nil {
		content = &atoll.Content{}
	}
	if !b.loaded.Load() {
		number = 0 // the content is older than this process
	}
	b.ownership.setContent(id, bundle.Ref.UID, number, content)
	b.policyStatus.recordUsedOverrides(id, content)
	b.ownership.recordSourceIfAbsent(id, bundle.Spec.Source, bundle.Spec.Group)
	return nil
}

// latestContent returns the content and the number of a Bundle's latest Revision; nil and 0
// before the first.
func (b *Binder) latestContent(ctx context.Context, uid string) (*atoll.Content, int64, error) {
	latest, ok := b.Revisions.LatestOfBundle(uid)
	if !ok {
		return nil, 0, nil
	}
	content, err := b.Revisions.GetContent(ctx, latest.Name)
	return content, latest.Spec.Number, err
}

// hasRevision returns whether the Bundle exists and has a Revision.
func (b *Binder) hasRevision(id policymatch.BundleID) bool {
	bundle, exists := b.Bundles.GetByName(id.Namespace, id.Name)
	if !exists {
		return false
	}
	_, has := b.Revisions.LatestOfBundle(bundle.Ref.UID)
	return has
}

// objectSet is a set of objects, by whole kinds and by name.
type objectSet struct {
	all   bool
	kinds map[schema.GroupKind]bool
	names map[atoll.ItemKey]bool // namespace is empty
}

// selectedByOverride returns the objects that an override policy selects. A selector by labels
// adds its whole kind.
func selectedByOverride(spec *v1alpha1.OverrideSpec) objectSet {
	k := objectSet{all: len(spec.ResourceSelectors) == 0, kinds: map[schema.GroupKind]bool{}, names: map[atoll.ItemKey]bool{}}
	for _, rs := range spec.ResourceSelectors {
		if gk := policymatch.SelectorKind(rs); rs.Name == "" {
			k.kinds[gk] = true
		} else {
			k.names[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Name: rs.Name}] = true
		}
	}
	return k
}

func (k objectSet) unionWith(o objectSet) objectSet {
	u := objectSet{all: k.all || o.all, kinds: map[schema.GroupKind]bool{}, names: map[atoll.ItemKey]bool{}}
	for _, s := range []objectSet{k, o} {
		maps.Copy(u.kinds, s.kinds)
		maps.Copy(u.names, s.names)
	}
	return u
}

// hasWholeKinds reports whether the set holds more than single names.
func (k objectSet) hasWholeKinds() bool { return k.all || len(k.kinds) > 0 }

func (k objectSet) has(key atoll.ItemKey) bool {
	return k.all || k.kinds[policymatch.GroupKindOf(key)] || k.names[atoll.ItemKey{Group: key.Group, Kind: key.Kind, Name: key.Name}]
}
