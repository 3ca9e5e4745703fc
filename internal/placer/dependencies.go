package placer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// loadDependencies fills the index of dependencies, if a Bundle states one.
func (r *PlacementReconciler) loadDependencies() {
	states := func(b state.Bundle) bool { return len(b.Spec.DependsOn) > 0 }
	if slices.ContainsFunc(r.Bundles.List(), states) {
		r.dependencies.load(r.Bundles.List)
	}
}

// supposeDependencies fills the index of a preview, if a Bundle states a dependency.
func (r *PlacementReconciler) supposeDependencies(from *PlacementReconciler) {
	if from.dependencies.hasLoaded() {
		r.dependencies.load(r.Bundles.List)
	}
}

// recordDependencies records a Bundle that changed, and reconciles the Bundles whose wait may follow from that.
func (r *PlacementReconciler) recordDependencies(uid string) {
	r.wakeOrdered(r.dependencies.recordBundle(uid, r.Bundles))
}

// wakeDependents reconciles the Bundles that wait for rows of a Bundle in some clusters, or, where clusters is nil, in any.
func (r *PlacementReconciler) wakeDependents(uid string, clusters []string) {
	r.wakeOrdered(r.dependencies.listWaiting(uid, clusters))
}

// wakeOrdered reconciles all rows of Bundles that wait for others, after the time in which further changes may come.
func (r *PlacementReconciler) wakeOrdered(uids []string) {
	for _, uid := range uids {
		r.bundleLoop.EnqueueAfter(uid, r.index.requireAllRows(uid))
	}
}

// addOrder adds to a step for which Bundles of other policies its rows may have to wait. A Bundle without items, or that is deleted, waits for those
// that depend on it, and for no other: what it depends on may be broken.
func (r *PlacementReconciler) addOrder(ctx context.Context, s *stepInput, content *atoll.Content) (err error) {
	b, in := s.bundle, &s.rollout
	if len(b.Spec.DependsOn) > 0 {
		r.dependencies.load(r.Bundles.List)
	}
	isRemoved := in.Deleting || content != nil && len(content.Items) == 0
	if isRemoved && r.startedAt.Load() == 0 { // another hub leads, and this one explains
		r.loadDependencies()
	}
	if !r.mayWaitForOthers(b) {
		return nil
	}
	own := b.Spec.Source.PolicyOf(b.Ref.Namespace)
	if !isRemoved {
		in.Order.Dependencies = r.dependenciesOf(b, own)
		return nil
	}
	in.Order.RemovedAt = r.removalTimeOf(b, in.Deleting)
	in.Order.Dependents, err = r.dependentsOf(ctx, b, own)
	return err
}

// mayWaitForOthers reports whether rows of a Bundle may have to wait for Bundles of other policies.
func (r *PlacementReconciler) mayWaitForOthers(b state.Bundle) bool {
	return len(b.Spec.DependsOn) > 0 || r.dependencies.mayWait(b.Ref.UID)
}

// removalTimeOf returns since when a Bundle is removed.
func (r *PlacementReconciler) removalTimeOf(b state.Bundle, isDeleting bool) time.Time {
	if at := b.Meta.DeletionTimestamp; at != nil {
		return at.Time
	}
	if ns, ok := r.Namespaces.Get(b.Ref.Namespace); ok && isDeleting && ns.DeletionTimestamp != nil {
		return ns.DeletionTimestamp.Time
	}
	if latest, ok := r.Revisions.LatestOfBundle(b.Ref.UID); ok {
		return latest.CreationTimestamp.Time
	}
	return time.Time{}
}

// dependenciesOf returns what a Bundle depends on. Rows are read when a step needs them.
func (r *PlacementReconciler) dependenciesOf(b state.Bundle, own v1alpha1.PolicyRef) []rollout.Dependency {
	out := make([]rollout.Dependency, 0, len(b.Spec.DependsOn))
	for _, d := range b.Spec.DependsOn {
		ref := d.RefFrom(own)
		one := rollout.Dependency{PolicyDependency: d, Policy: ref}
		one.FindCycle = sync.OnceValue(func() []v1alpha1.PolicyRef { return r.findCycle(own, ref) })
		for _, uid := range r.dependencies.bundlesOf(ref, b.Ref.UID) {
			if other, is := r.dependencyBundle(uid, b.Ref.Namespace); is {
				one.Bundles = append(one.Bundles, other)
			}
		}
		out = append(out, one)
	}
	return out
}

// findCycle returns the policies by which a dependency leads back to the policy that states it; nil: it does not.
func (r *PlacementReconciler) findCycle(own, dependency v1alpha1.PolicyRef) []v1alpha1.PolicyRef {
	if own == dependency {
		return []v1alpha1.PolicyRef{own}
	}
	return r.dependencies.findPath(dependency, own)
}

// dependencyBundle returns a Bundle on which those of a namespace depend; false for one that is removed.
func (r *PlacementReconciler) dependencyBundle(uid, namespace string) (out rollout.DependencyBundle, is bool) {
	b, exists := r.Bundles.Get(uid)
	latest, hasRevision := r.Revisions.LatestOfBundle(uid)
	if !exists || r.isRemoved(b) {
		return out, false
	}
	if hasRevision {
		out.Revision, out.MinRevision = latest.Name, latest.Spec.Base
	}
	out.IsOfOthers = b.Ref.Namespace != "" && b.Ref.Namespace != namespace
	out.FindRow = func(cluster string) (rollout.Row, bool) {
		row, has := r.Rows.Get(uid, cluster)
		if !has {
			return rollout.Row{}, false
		}
		return r.rolloutRow(row), true
	}
	out.ListRows = sync.OnceValue(func() (rows []rollout.Row) {
		for _, row := range r.Rows.ListOfBundle(uid) {
			rows = append(rows, r.rolloutRow(row))
		}
		return rows
	})
	return out, true
}

// isRemoved reports whether a Bundle is deleted, or has no item any more.
func (r *PlacementReconciler) isRemoved(b state.Bundle) bool {
	latest, ok := r.Revisions.LatestOfBundle(b.Ref.UID)
	return r.isBundleOrNamespaceDeleting(b) || ok && latest.Spec.Items == 0
}

// dependentsOf returns the Bundles that leave before one that is removed. Policies that depend on each other have no first one.
func (r *PlacementReconciler) dependentsOf(ctx context.Context, b state.Bundle, own v1alpha1.PolicyRef) (out []rollout.Dependent, err error) {
	for _, uid := range r.dependencies.dependentsOf(own, b.Ref.UID) {
		other, exists := r.Bundles.Get(uid)
		policy := r.dependencies.policyOf(uid)
		if !exists || policy == own || r.dependencies.findPath(own, policy) != nil {
			continue
		}
		one := rollout.Dependent{Policy: policy, IsRemoved: r.isRemoved(other)}
		switch {
		case !one.IsRemoved:
			one.Patience = rollout.DependentsGrace
		case policy.Kind != own.Kind, other.Ref.Namespace != b.Ref.Namespace: // users of another namespace could hold it for ever
			one.Patience = rollout.DependentsLimit
		}
		if one.HasLeft, err = r.leftCheckOf(ctx, uid); err != nil {
			return nil, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
		}
		out = append(out, one)
	}
	return out, nil
}

// leftCheckOf returns whether a cluster has nothing of a Bundle: no row, or one of which all is removed.
func (r *PlacementReconciler) leftCheckOf(ctx context.Context, uid string) (hasLeft func(cluster string) bool, err error) {
	var content *atoll.Content
	latest, ok := r.Revisions.LatestOfBundle(uid)
	if ok && latest.Spec.Items == 0 {
		if content, err = r.Revisions.GetContent(ctx, latest.Name); err != nil {
			return nil, err
		}
	}
	return func(cluster string) bool {
		row, has := r.Rows.Get(uid, cluster)
		switch {
		case !has, row.Spec.Phase.OrdersNothing(), row.Spec.IsRemovalDone(row.Status):
			return true
		case content == nil, row.Spec.Revision != latest.Name:
			return false
		}
		return !slices.ContainsFunc(content.Tombstones, func(t atoll.Tombstone) bool { return !t.IsDoneInRow(latest.Name, row.Spec, row.Status) })
	}, nil
}
