package bind

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/state"
)

// Templates is the table of everything on the hub that may be placed.
type Templates interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	InNamespace(ns string) []*unstructured.Unstructured
	OfKind(gk schema.GroupKind, ns string) []*unstructured.Unstructured
	Synced(group, kind string) bool
	Unread(group, kind string) error
	Namespaced(group, kind string) (namespaced, known bool)
	Resource(key atoll.ItemKey) (schema.GroupVersionResource, bool)
	Subscribe(func(atoll.ItemKey))
	SubscribeSync(func())
}

// Namespaces is the table of the hub's namespaces.
type Namespaces interface {
	Get(name string) (*corev1.Namespace, bool)
	List() []string
	Subscribe(func(name string))
}

// Policies is the table of policies.
type Policies interface {
	Propagation(ns string) []*v1alpha1.PropagationPolicy
	PropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool)
	ClusterPropagation() []*v1alpha1.ClusterPropagationPolicy
	ClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool)
	Overrides(ns string) []*v1alpha1.OverridePolicy
	ClusterOverrides() []*v1alpha1.ClusterOverridePolicy
	Interpreters() *script.Library
	Subscribe(func(kind, ns, name string))
}

// Bundles is the table of Bundles.
type Bundles interface {
	Get(uid string) (state.Bundle, bool)
	ByName(ns, name string) (state.Bundle, bool)
	List() []state.Bundle
	Put(obj client.Object)
	Subscribe(func(uid string))
}

// Rows is the table of rows.
type Rows interface {
	OfBundle(uid string) []state.Row
	Subscribe(func(bundleUID string, clusters []string))
}

// Clusters is the table of members.
type Clusters interface {
	Online(uid string) bool
	Subscribe(func(name string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	Latest(bundleUID string) (*enginev1.Revision, bool)
	Content(ctx context.Context, name string) (*atoll.Content, error)
	Cut(ctx context.Context, ref enginev1.BundleRef, content *atoll.Content) (string, error)
}

// Options of a Binder; all but Placements, Events, Finalize, Prints and ReadOnly are required.
type Options struct {
	Templates  Templates
	Namespaces Namespaces
	Policies   Policies
	// Placements that policies refer to; nil: there are none.
	Placements Placements
	Bundles    Bundles
	Rows       Rows
	Clusters   Clusters
	// Events; nil: nobody is told.
	Events    Events
	Revisions Revisions
	// Client writes Bundles, policies' status and templates' finalizers.
	Client client.Client
	// Finalize puts a finalizer on a template as it is in the table, by a cheaper way than
	// the Client's; done is false where that cannot be done. Nil: there is none.
	Finalize func(ctx context.Context, t *unstructured.Unstructured, finalizer string) (done bool, err error)
	// Defaults of the API that this hub serves.
	Defaults render.Defaulter
	// Prints that others read too; nil: the Binder has some of its own.
	Prints *Prints
	Log    *slog.Logger
	// ReadOnly makes a Binder that only answers who places what, on a hub that does
	// not lead: it plans, follows what the leader does, and writes nothing.
	ReadOnly bool
}

// workers plan Bundles at the same time, each another one; they mostly wait for the store.
const workers = 32

// owner is the field manager of what bind writes.
const owner = client.FieldOwner("atoll-hub")

// Binder keeps Bundles and their Revisions as templates and policies want them.
type Binder struct {
	Options
	index    policyIndex
	claims   *claims
	inbox    *inbox
	queue    workqueue.TypedRateLimitingInterface[claim.BundleID]
	quiet    toucher
	reports  *reporter
	unread   *waits[schema.GroupKind]
	homeless *waits[claim.BundleID]
	// placeless Bundles are to have a Placement that does not exist.
	placeless *waits[claim.BundleID]
	loaded    atomic.Bool

	// Only the goroutine that handles events touches these.
	overridden map[policyKey]kindSet    // what override policies select
	library    *script.Library          // interpreters, as last seen
	namespaces map[string]string        // annotations, as last seen
	told       map[string]string        // which namespaces there are and what members are told of them, as last seen
	seen       map[atoll.ItemKey]looked // templates, as last looked at
	decided    map[string]string        // of held removals, by Bundle UID
}

// toucher is told which Bundles to plan.
type toucher interface {
	touch(claim.BundleID)
	stop()
}

// New makes a Binder over tables that need not have anything yet. It subscribes to
// them at once and acts in Run.
func New(o Options) *Binder {
	if o.Prints == nil {
		o.Prints = &Prints{}
	}
	b := &Binder{
		Options: o, claims: newClaims(), inbox: newInbox(), unread: newWaits[schema.GroupKind](), homeless: newWaits[claim.BundleID](), placeless: newWaits[claim.BundleID](),
		overridden: map[policyKey]kindSet{}, namespaces: map[string]string{}, told: map[string]string{}, seen: map[atoll.ItemKey]looked{},
		decided: map[string]string{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.DefaultTypedControllerRateLimiter[claim.BundleID](),
			workqueue.TypedRateLimitingQueueConfig[claim.BundleID]{Name: "bind"}),
	}
	b.quiet = newDebouncer(b.queue.Add)
	b.reports = newReporter(b)
	o.Templates.Subscribe(func(key atoll.ItemKey) {
		if o.Templates.Synced(key.Group, key.Kind) {
			b.inbox.put(event{template: key})
		} else {
			b.inbox.recheck(event{template: key})
		}
	})
	o.Templates.SubscribeSync(func() { b.inbox.put(event{synced: true}) })
	o.Namespaces.Subscribe(func(name string) { b.inbox.put(event{namespace: name}) })
	o.Policies.Subscribe(func(kind, ns, name string) { b.inbox.put(event{policy: policyKey{kind, ns, name}}) })
	if o.Placements != nil {
		o.Placements.Subscribe(func(key types.NamespacedName) { b.inbox.put(event{placement: key}) })
	}
	o.Bundles.Subscribe(func(uid string) { b.inbox.put(event{bundle: uid}) })
	o.Rows.Subscribe(func(uid string, _ []string) { b.inbox.put(event{rows: uid}) })
	o.Clusters.Subscribe(func(string) { b.inbox.put(event{clusters: true}) })
	return b
}

// Run binds until ctx ends. The typed tables must have their first lists; kinds of
// templates may still be coming. Errors of single Bundles are logged and tried
// again; Run returns one only when it cannot read what the Bundles have.
func (b *Binder) Run(ctx context.Context) error {
	if err := b.load(ctx); err != nil {
		return err
	}
	b.loaded.Store(true)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for b.work(ctx) {
			}
		})
	}
	if !b.ReadOnly {
		wg.Go(func() {
			for b.reports.work(ctx) {
			}
		})
	}
	for {
		e, ok := b.inbox.next(ctx)
		if !ok {
			break
		}
		b.handle(e)
	}
	b.inbox.close()
	b.quiet.stop()
	b.queue.ShutDown()
	b.reports.queue.ShutDown()
	wg.Wait()
	return nil
}

// load learns what Bundles have and what policies want, and queues everything to
// be checked once, behind what changes from now on.
func (b *Binder) load(ctx context.Context) error {
	b.inbox.clear()
	for _, bundle := range b.Bundles.List() {
		if err := b.learn(ctx, bundle); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		b.inbox.recheck(event{bundle: bundle.Ref.UID})
	}
	b.index.setCluster(b.Policies.ClusterPropagation())
	for _, p := range b.Policies.ClusterOverrides() {
		b.overridden[policyKey{"ClusterOverridePolicy", "", p.Name}] = overridden(&p.Spec.OverrideSpec)
	}
	b.library = b.Policies.Interpreters()
	for _, ns := range b.Namespaces.List() {
		b.index.setNamespace(ns, b.Policies.Propagation(ns))
		b.namespaces[ns] = b.namespaceState(ns)
		b.told[ns] = b.toldOf(ns)
		for _, p := range b.Policies.Overrides(ns) {
			b.overridden[policyKey{"OverridePolicy", ns, p.Name}] = overridden(&p.Spec)
		}
	}
	for _, ns := range append([]string{""}, b.Namespaces.List()...) {
		for _, t := range b.Templates.InNamespace(ns) {
			b.inbox.recheck(event{template: claim.KeyOf(t)})
		}
	}
	return nil
}

// learn what a Bundle's latest Revision has.
func (b *Binder) learn(ctx context.Context, bundle state.Bundle) error {
	id := claim.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name}
	content, number, err := b.previous(ctx, bundle.Ref.UID)
	if err != nil {
		return fmt.Errorf("learn what bundle %s has: %w", id, err)
	}
	if content == nil {
		content = &atoll.Content{}
	}
	if !b.loaded.Load() {
		number = 0 // what was there when this hub began to look
	}
	b.claims.has(id, bundle.Ref.UID, number, content)
	b.claims.adopt(id, bundle.Spec.Source, bundle.Spec.Group)
	return nil
}

// previous gives the content of a Bundle's latest Revision and that one's number, nil
// before the first.
func (b *Binder) previous(ctx context.Context, uid string) (*atoll.Content, int64, error) {
	latest, ok := b.Revisions.Latest(uid)
	if !ok {
		return nil, 0, nil
	}
	content, err := b.Revisions.Content(ctx, latest.Name)
	return content, latest.Spec.Number, err
}

// kindSet is a set of objects: of whole kinds, and by their names.
type kindSet struct {
	all   bool
	kinds map[schema.GroupKind]bool
	names map[atoll.ItemKey]bool // without a namespace
}

// overridden is what an override policy selects, and more where it does by labels.
func overridden(spec *v1alpha1.OverrideSpec) kindSet {
	k := kindSet{all: len(spec.ResourceSelectors) == 0, kinds: map[schema.GroupKind]bool{}, names: map[atoll.ItemKey]bool{}}
	for _, rs := range spec.ResourceSelectors {
		if gk := claim.KindOf(rs); rs.Name == "" {
			k.kinds[gk] = true
		} else {
			k.names[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Name: rs.Name}] = true
		}
	}
	return k
}

func (k kindSet) union(o kindSet) kindSet {
	u := kindSet{all: k.all || o.all, kinds: map[schema.GroupKind]bool{}, names: map[atoll.ItemKey]bool{}}
	for _, s := range []kindSet{k, o} {
		maps.Copy(u.kinds, s.kinds)
		maps.Copy(u.names, s.names)
	}
	return u
}

// open sets hold more than single names.
func (k kindSet) open() bool { return k.all || len(k.kinds) > 0 }

func (k kindSet) has(key atoll.ItemKey) bool {
	return k.all || k.kinds[claim.GroupKind(key)] || k.names[atoll.ItemKey{Group: key.Group, Kind: key.Kind, Name: key.Name}]
}
