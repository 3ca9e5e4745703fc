package binder

import (
	"context"
	"iter"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/tracing"
)

// createRevision writes the Revision of a plan, and records its trace and its time.
func (b *Binder) createRevision(ctx context.Context, ref enginev1.BundleRef, p bundlePlan) error {
	finish := func(string) {}
	if b.Traces != nil {
		previous, _ := b.Revisions.LatestOfBundle(ref.UID)
		ctx, finish = b.Traces.BeginBind(ctx, tracing.RevisionBind{Bundle: ref, Previous: previous, Started: p.startedAt, Sources: p.listCauses(ref.Namespace)})
	}
	name, err := b.Revisions.CreateRevision(ctx, ref, &p.output.Content)
	if err != nil {
		return err
	}
	finish(name)
	b.OnRevision(ref.UID, name, b.touched.startWait(policymatch.BundleID{Namespace: ref.Namespace, Name: ref.Name}, time.Now()))
	return nil
}

// listCauses lists the objects whose writes can be the cause of the plan's Revision: its items,
// what it removes, and the policies that apply.
func (p bundlePlan) listCauses(namespace string) iter.Seq[atoll.ItemKey] {
	return func(yield func(atoll.ItemKey) bool) {
		for i := range p.output.Content.Items {
			if !yield(p.output.Content.Items[i].Key) {
				return
			}
		}
		for i := range p.output.Content.Tombstones {
			if !yield(p.output.Content.Tombstones[i].Key) {
				return
			}
		}
		source := p.origin.source
		if !yield(policyItemKey(source.Kind, policyNamespace(source.Kind, policymatch.BundleID{Namespace: namespace}), source.Name)) {
			return
		}
		for _, o := range p.input.ClusterOverrides {
			if !yield(policyItemKey("ClusterOverridePolicy", "", o.Name)) {
				return
			}
		}
		for _, o := range p.input.NamespaceOverrides {
			if !yield(policyItemKey("OverridePolicy", namespace, o.Name)) {
				return
			}
		}
	}
}

func policyItemKey(kind, namespace, name string) atoll.ItemKey {
	return atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: namespace, Name: name}
}
