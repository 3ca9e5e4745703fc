package hub

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/hub/view"
)

// shown gives the tables by which it is known what runs where; false until they are read.
func (l *lateParts) shown() (view.Tables, bool) {
	p, ok := l.parts.Get()
	return tables{p}, ok
}

// tables are the state's.
type tables struct{ *parts }

func (t tables) Cluster(name string) (*v1alpha1.Cluster, bool) { return t.state.Clusters.Get(name) }

func (t tables) Clusters() []*v1alpha1.Cluster { return t.state.Clusters.List() }

func (t tables) Placed(namespace string) map[string][]string { return t.state.Rows.Placed(namespace) }

func (t tables) PlacedAt(namespace, cluster string) bool {
	return t.state.Rows.PlacedAt(namespace, cluster)
}

func (t tables) OfKind(gk schema.GroupKind, namespace string) []*unstructured.Unstructured {
	return t.state.Templates.OfKind(gk, namespace)
}

// Stated reads the Revisions of the Bundle that places the template, or else of one that holds it.
func (t tables) Stated(ctx context.Context, key atoll.ItemKey, uid types.UID) (stated []view.Stated, next int64, err error) {
	if !t.bind.Loaded() {
		return nil, 0, starting("it does not know yet what is in which bundle")
	}
	bundles := t.bind.Involved(key)
	if why, ok := t.bind.Explain(key); ok && why.Winner != nil {
		bundles = slices.Insert(bundles, 0, why.Bundle)
	}
	for _, id := range bundles {
		b, ok := t.state.Bundles.ByName(id.Namespace, id.Name)
		if !ok {
			continue
		}
		if stated, next, err = t.statedIn(ctx, b.Ref.UID, key, uid); err != nil || len(stated) > 0 {
			return stated, next, err
		}
	}
	return nil, 0, nil
}

// statedIn the Revisions of a Bundle.
func (t tables) statedIn(ctx context.Context, bundle string, key atoll.ItemKey, uid types.UID) (stated []view.Stated, next int64, err error) {
	for _, r := range t.state.Revisions.OfBundle(bundle) {
		next = r.Spec.Number + 1
		content, err := t.state.Revisions.Content(ctx, r.Name)
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
		stated = append(stated, view.Stated{Number: r.Spec.Number, Written: r.CreationTimestamp, Version: r.ResourceVersion, Object: content.Items[i].Object})
	}
	return stated, next, nil
}

func (t tables) Template(key atoll.ItemKey) (metav1.Object, bool) {
	return t.state.Templates.Get(key)
}
