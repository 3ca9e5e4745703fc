// Package tables answers the questions of the fleet view from the hub's tables.
//
// Contract: all answers are those of the tables at the time of the call, and nothing is written.
// Contents of Revisions are read through the table of Revisions. Tables is safe for concurrent use.
package tables

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/respond"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/fleetview/server"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// Binder holds which Bundle an object is in.
type Binder interface {
	IsLoaded() bool
	BundlesInvolving(key atoll.ItemKey) []policymatch.BundleID
	BundlesHolding(key atoll.ItemKey) []policymatch.BundleID
	BundlesHoldingAny(namespace string, matches func(atoll.ItemKey) bool) []policymatch.BundleID
	ExplainTemplate(key atoll.ItemKey) (binder.Explanation, bool)
}

// Tables are those of the state.
type Tables struct {
	State  *state.HubTables
	Binder Binder
}

// Cluster returns a Cluster by its name.
func (t Tables) Cluster(name string) (*v1alpha1.Cluster, bool) { return t.State.Clusters.Get(name) }

// Clusters lists the Clusters.
func (t Tables) Clusters() []*v1alpha1.Cluster { return t.State.Clusters.List() }

// PlacedNamespacesByCluster returns the namespaces with rows, by cluster; an empty namespace means
// all.
func (t Tables) PlacedNamespacesByCluster(namespace string) map[string][]string {
	return t.State.Rows.PlacedNamespacesByCluster(namespace)
}

// PlacedAt reports whether the cluster has rows of the namespace.
func (t Tables) PlacedAt(namespace, cluster string) bool {
	return t.State.Rows.HasRowsInNamespace(namespace, cluster)
}

// HasRowForTemplate reports whether the cluster has a row of a Bundle that holds the template.
func (t Tables) HasRowForTemplate(key atoll.ItemKey, cluster string) bool {
	return slices.ContainsFunc(t.Binder.BundlesHolding(key), func(id policymatch.BundleID) bool {
		b, ok := t.State.Bundles.GetByName(id.Namespace, id.Name)
		return ok && t.State.Rows.HasRow(b.Ref.UID, cluster)
	})
}

// HoldersOf returns the clusters that have a row of a Bundle that holds the template. The value is
// true where the template is to stay. Before the Bundles are loaded there is no answer.
func (t Tables) HoldersOf(key atoll.ItemKey) (map[string]bool, error) {
	if !t.Binder.IsLoaded() {
		return nil, respond.StillStarting("it has not read yet what is in which bundle")
	}
	out := map[string]bool{}
	for _, id := range t.Binder.BundlesHolding(key) {
		b, ok := t.State.Bundles.GetByName(id.Namespace, id.Name)
		if !ok {
			continue
		}
		for _, row := range t.State.Rows.ListOfBundle(b.Ref.UID) {
			out[row.Cluster] = out[row.Cluster] || row.Spec.Phase == atoll.RowActive
		}
	}
	return out, nil
}

// ClustersLikelyHolding returns the clusters that have a row of a Bundle in the namespace that holds a
// template whose name fits. It costs the items of the Bundles of the namespace.
func (t Tables) ClustersLikelyHolding(namespace string, fits func(template string) bool) map[string]bool {
	out := map[string]bool{}
	matches := func(key atoll.ItemKey) bool { return fits(key.Name) }
	for _, id := range t.Binder.BundlesHoldingAny(namespace, matches) {
		b, ok := t.State.Bundles.GetByName(id.Namespace, id.Name)
		if !ok {
			continue
		}
		for _, row := range t.State.Rows.ListOfBundle(b.Ref.UID) {
			out[row.Cluster] = true
		}
	}
	return out
}

// TemplatesOfKind lists the templates of a kind.
func (t Tables) TemplatesOfKind(gk schema.GroupKind, namespace string) []*unstructured.Unstructured {
	return t.State.Templates.ListOfKind(gk, namespace)
}

// RevisionTemplates reads the Revisions of the Bundle that places the template, or else of a Bundle that
// holds it.
func (t Tables) RevisionTemplates(ctx context.Context, key atoll.ItemKey, uid types.UID) (stated []server.RevisionTemplate, next int64, err error) {
	if !t.Binder.IsLoaded() {
		return nil, 0, respond.StillStarting("it has not read yet what is in which bundle")
	}
	bundles := t.Binder.BundlesInvolving(key)
	if why, ok := t.Binder.ExplainTemplate(key); ok && why.Winner != nil {
		bundles = slices.Insert(bundles, 0, why.Bundle)
	}
	for _, id := range bundles {
		b, ok := t.State.Bundles.GetByName(id.Namespace, id.Name)
		if !ok {
			continue
		}
		if stated, next, err = t.templatesInRevisions(ctx, b.Ref.UID, key, uid); err != nil || len(stated) > 0 {
			return stated, next, err
		}
	}
	return nil, 0, nil
}

// templatesInRevisions returns the templates of the Revisions of a Bundle.
func (t Tables) templatesInRevisions(ctx context.Context, bundle string, key atoll.ItemKey, uid types.UID) (stated []server.RevisionTemplate, next int64, err error) {
	for _, r := range t.State.Revisions.OfBundle(bundle) {
		next = r.Spec.Number + 1
		content, err := t.State.Revisions.GetContent(ctx, r.Name)
		if apierrors.IsNotFound(err) {
			continue // it has just been forgotten
		}
		if err != nil {
			return nil, 0, err
		}
		i, ok := slices.BinarySearchFunc(content.Items, key, func(it atoll.Item, key atoll.ItemKey) int { return it.Key.Compare(key) })
		if !ok || content.Items[i].UID != string(uid) {
			continue
		}
		stated = append(stated, server.RevisionTemplate{Number: r.Spec.Number, Written: r.CreationTimestamp, Version: r.ResourceVersion, Object: content.Items[i].Object})
	}
	return stated, next, nil
}

// Template returns a template.
func (t Tables) Template(key atoll.ItemKey) (metav1.Object, bool) {
	return t.State.Templates.Get(key)
}
