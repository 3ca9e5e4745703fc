package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// errMoved: something that the plan came from has changed; the next look will tell.
var errMoved = errors.New("changed while it was planned")

// work plans one Bundle; false when the queue has been shut down.
func (b *Binder) work(ctx context.Context) bool {
	id, shutdown := b.queue.Get()
	if shutdown {
		return false
	}
	defer b.queue.Done(id)
	switch err := b.reconcile(ctx, id); {
	case err == nil:
		b.queue.Forget(id)
	case ctx.Err() != nil:
	case apierrors.IsConflict(err) || errors.Is(err, errMoved):
		b.queue.AddRateLimited(id)
	default:
		b.Log.Error("could not bind; trying again", "bundle", id.String(), "err", err)
		b.queue.AddRateLimited(id)
	}
	return true
}

// reconcile brings a Bundle and its latest Revision to what templates and policies
// want now.
func (b *Binder) reconcile(ctx context.Context, id claim.BundleID) error {
	bundle, exists := b.Bundles.ByName(id.Namespace, id.Name)
	if exists && bundle.Meta.DeletionTimestamp != nil || b.terminating(id.Namespace) {
		return nil
	}
	if exists {
		if err := b.learn(ctx, bundle); err != nil {
			return err
		}
	}
	p, err := b.prepare(ctx, id, bundle, exists)
	if err != nil {
		return err
	}
	in, from, unplaced := p.in, p.from, b.unplacedSource(id, p.from)
	if !exists && unplaced != "" {
		b.awaitPlacement(id, unplaced, in.Claimed)
		return nil
	}
	b.placeless.end(id)
	if p.homeless() {
		return b.awaitNamespace(ctx, id, bundle, from, in.Claimed)
	}
	b.homeless.end(id)
	if kind, unread := b.unsynced(in); unread {
		b.claims.block(id, true)
		return b.await(ctx, id, bundle, from, kind)
	}
	b.claims.block(id, false)
	if !b.ReadOnly {
		if err := b.settleRecall(ctx, bundle, in.Previous); err != nil {
			return err
		}
	}
	p.out = claim.Plan(in)
	b.claims.wants(id, p.out.Wants, p.out.Selections)
	if kind, unread := b.firstUnread(b.neededKinds(p.out)); unread {
		b.claims.block(id, true)
		return b.await(ctx, id, bundle, from, kind)
	}
	b.claims.await(id, p.out.Waiting)
	if b.ReadOnly {
		return nil
	}
	b.reports.problems(id, ReasonCannotSend, p.out.Problems)
	if err := b.tell(ctx, bundle, from, unplaced, p.out.Problems); err != nil {
		return err
	}
	if err := b.carryOut(ctx, id, bundle, exists, p); err != nil {
		return err
	}
	if p.out.Cut && b.overtaken(id, in) {
		b.touch(id)
	}
	return nil
}

// overtaken tells whether override policies or interpreters have changed since the plan was
// made of them. Their news touches what a Bundle is known to have, which while its first
// Revision is being written is nothing yet.
func (b *Binder) overtaken(id claim.BundleID, in claim.PlanInput) bool {
	return b.Policies.Interpreters() != in.Interpreters || !slices.Equal(b.Policies.ClusterOverrides(), in.ClusterOverrides) ||
		id.Namespace != "" && !slices.Equal(b.Policies.Overrides(id.Namespace), in.Overrides)
}

// prepare what the plan of a Bundle follows from.
func (b *Binder) prepare(ctx context.Context, id claim.BundleID, bundle state.Bundle, exists bool) (plan, error) {
	from, claimed := b.claims.known(id)
	intent := b.intent(id, from)
	in := claim.PlanInput{
		Claimed: claimed, Intent: intent, Defaults: b.Defaults, Fingerprint: b.Prints.Of, World: world{b, id}, Limits: limits{},
		ClusterOverrides: b.Policies.ClusterOverrides(), Interpreters: b.Policies.Interpreters(),
	}
	if id.Namespace != "" {
		in.Overrides = b.Policies.Overrides(id.Namespace)
		in.Namespace = b.namespaceMeta(id.Namespace)
	}
	if exists {
		var err error
		if in.Previous, in.Number, err = b.previous(ctx, bundle.Ref.UID); err != nil {
			return plan{}, fmt.Errorf("read the content that bundle %s has: %w", id, err)
		}
		in.Confirmed = b.confirmed(bundle.Ref.UID)
	}
	var err error
	if in.Handed, err = b.handed(ctx, id, claimed, in.Previous); err != nil {
		return plan{}, fmt.Errorf("read what bundle %s takes over: %w", id, err)
	}
	return plan{in: in, from: from, intent: intent, namespaced: id.Namespace != ""}, nil
}

// confirmed tells of tombstones that the Bundle's latest Revision carries whether all
// rows have carried them out. Where there are none, no row is looked at.
func (b *Binder) confirmed(bundle string) func(atoll.Tombstone) bool {
	var rows []state.Row
	revision, read := "", false
	return func(t atoll.Tombstone) bool {
		if !read {
			rows, read = b.Rows.OfBundle(bundle), true
			if latest, ok := b.Revisions.Latest(bundle); ok {
				revision = latest.Name
			}
		}
		return !slices.ContainsFunc(rows, func(r state.Row) bool { return !t.Confirmed(revision, r.Spec, r.Status) })
	}
}

// plan and what it came from.
type plan struct {
	in     claim.PlanInput
	out    claim.PlanOutput
	from   origin
	intent *claim.Intent
	// namespaced: the Bundle is in a namespace.
	namespaced bool
}

// homeless tells whether nothing is known of the namespace of what is claimed.
func (p plan) homeless() bool {
	return p.namespaced && p.in.Namespace == nil && len(p.in.Claimed) > 0
}

// spec that the Bundle is to have, in place of the old one.
func (p plan) spec(old v1alpha1.BundleSpec) v1alpha1.BundleSpec {
	old.Source, old.Group = p.from.source, p.from.group
	if p.intent != nil {
		s := p.intent.Spec
		old.Placement, old.ConflictResolution, old.Removal, old.WhenUnfit = s.Placement, s.ConflictResolution, s.Removal, s.WhenUnfit
	}
	return old
}

func (b *Binder) carryOut(ctx context.Context, id claim.BundleID, bundle state.Bundle, exists bool, p plan) error {
	if !exists && len(p.out.Content.Items) == 0 {
		return nil
	}
	if err := b.finalize(ctx, p.out.Finalize); err != nil {
		return err
	}
	if !exists || p.intent != nil {
		var err error
		if bundle, err = b.writeBundle(ctx, id, bundle, p); err != nil {
			return err
		}
	}
	if p.out.Cut {
		if _, err := b.Revisions.Cut(ctx, bundle.Ref, &p.out.Content); err != nil {
			return err
		}
		b.cut(id, bundle.Ref.UID, p)
	}
	if len(p.out.Content.Items) == 0 && len(p.out.Content.Tombstones) == 0 {
		return b.collect(ctx, bundle)
	}
	return nil
}

// cut tells other Bundles what this one has now: some may have waited for it to
// take an item over.
func (b *Binder) cut(id claim.BundleID, uid string, p plan) {
	for _, key := range b.claims.has(id, uid, p.in.Number+1, &p.out.Content) {
		for _, other := range b.claims.touched(key) {
			if other != id {
				b.queue.Add(other)
			}
		}
	}
	if p.in.Previous != nil {
		for _, item := range p.in.Previous.Items {
			b.claims.settle(item.Key)
		}
	}
	b.reports.touch(policyKey{p.from.source.Kind, policyNamespace(p.from.source.Kind, id), p.from.source.Name})
}

func policyNamespace(kind string, id claim.BundleID) string {
	if kind == v1alpha1.SourcePropagationPolicy {
		return id.Namespace
	}
	return ""
}

// intent of a Bundle's source; nil when there is none any more, or none that can be
// read.
func (b *Binder) intent(id claim.BundleID, from origin) *claim.Intent {
	switch from.source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := b.Policies.PropagationPolicy(id.Namespace, from.source.Name); ok {
			return b.placed(id, from.source.Kind, p.Spec)
		}
	case v1alpha1.SourceClusterPropagationPolicy:
		if p, ok := b.Policies.ClusterPropagationPolicy(from.source.Name); ok {
			return b.placed(id, from.source.Kind, p.Spec)
		}
	case v1alpha1.SourceNamespaceAnnotation:
		return claim.AnnotationIntent(b.namespaceOf(id.Namespace).Annotations)
	case v1alpha1.SourceAnnotation:
		if t, ok := b.Templates.Get(from.object); ok {
			return claim.AnnotationIntent(t.GetAnnotations())
		}
	}
	return nil
}

// unsynced names a kind without which the plan could be wrong; false when there is
// none.
func (b *Binder) unsynced(in claim.PlanInput) (schema.GroupKind, bool) {
	kinds := map[schema.GroupKind]bool{definitions: true}
	for _, key := range in.Claimed {
		kinds[claim.GroupKind(key)] = true
	}
	if in.Previous != nil {
		for _, item := range in.Previous.Items {
			kinds[claim.GroupKind(item.Key)] = true
		}
	}
	if in.Intent != nil {
		for _, rs := range in.Intent.Spec.ResourceSelectors {
			if _, known := b.Templates.Namespaced(claim.KindOf(rs).Group, rs.Kind); known {
				kinds[claim.KindOf(rs)] = true
			}
		}
		if in.Intent.Spec.PropagateDeps {
			for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"} {
				kinds[schema.GroupKind{Kind: kind}] = true
			}
		}
	}
	return b.firstUnread(kinds)
}

// neededKinds are those of what the items depend on, as far as the hub serves them: which
// these are, a plan alone tells.
func (b *Binder) neededKinds(out claim.PlanOutput) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	note := func(gk schema.GroupKind) {
		if _, known := b.Templates.Namespaced(gk.Group, gk.Kind); known {
			kinds[gk] = true
		}
	}
	for _, key := range out.Wants {
		note(claim.GroupKind(key))
	}
	for _, s := range out.Selections {
		note(schema.GroupKind{Group: s.Group, Kind: s.Kind})
	}
	return kinds
}

// firstUnread of the kinds, by name.
func (b *Binder) firstUnread(kinds map[schema.GroupKind]bool) (schema.GroupKind, bool) {
	for _, gk := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) }) {
		if !b.Templates.Synced(gk.Group, gk.Kind) {
			return gk, true
		}
	}
	return schema.GroupKind{}, false
}

// writeBundle makes the Bundle, or brings its spec to what the source wants.
func (b *Binder) writeBundle(ctx context.Context, id claim.BundleID, old state.Bundle, p plan) (state.Bundle, error) {
	spec := p.spec(old.Spec)
	if old.Ref.UID == "" {
		if p.intent == nil {
			return old, errMoved
		}
		old.Ref.Namespace, old.Ref.Name = id.Namespace, id.Name
		old.Meta = metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Finalizers: []string{atoll.FinalizerBundle}}
		old.Spec = spec
		return b.put(old.Object(), func(o client.Object) error { return b.Client.Create(ctx, o) }, "make bundle "+id.String())
	}
	if apiequality.Semantic.DeepEqual(old.Spec, spec) {
		return old, nil
	}
	old.Spec = spec
	return b.put(old.Object(), func(o client.Object) error { return b.Client.Update(ctx, o) }, "write bundle "+id.String())
}

func (b *Binder) put(obj client.Object, write func(client.Object) error, what string) (state.Bundle, error) {
	if err := write(obj); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = errMoved
		}
		return state.Bundle{}, fmt.Errorf("%s: %w", what, err)
	}
	b.Bundles.Put(obj)
	bundle, _ := state.BundleOf(obj)
	return bundle, nil
}

// collect deletes a Bundle that has nothing and owes nothing to any row.
func (b *Binder) collect(ctx context.Context, bundle state.Bundle) error {
	if slices.ContainsFunc(b.Rows.OfBundle(bundle.Ref.UID), func(r state.Row) bool { return r.Spec.Phase == atoll.RowHeld }) {
		return nil
	}
	obj := bundle.Object()
	pre := client.Preconditions{UID: &bundle.Meta.UID, ResourceVersion: &bundle.Meta.ResourceVersion}
	if err := b.Client.Delete(ctx, obj, pre); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("collect bundle %s/%s: %w", bundle.Ref.Namespace, bundle.Ref.Name, err)
	}
	return nil
}
