package server

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Tables are the hub's tables about members, by subject.
type Tables struct {
	Members
	Placements
	Templates
}

// Members is the table of Clusters.
type Members interface {
	// Cluster by name.
	Cluster(name string) (*v1alpha1.Cluster, bool)
	// Clusters are all of them, by name.
	Clusters() []*v1alpha1.Cluster
}

// Placements are the rows of clusters.
type Placements interface {
	// PlacedNamespacesByCluster gives the clusters that have rows in a namespace, or in any where it is empty,
	// and in which namespaces.
	PlacedNamespacesByCluster(namespace string) map[string][]string
	// PlacedAt reports whether a cluster has rows in a namespace.
	PlacedAt(namespace, cluster string) bool
	// HasRowForTemplate reports whether a cluster has a row of a Bundle that holds the template with a key.
	// Only such a member may answer for the template.
	HasRowForTemplate(key atoll.ItemKey, cluster string) bool
	// HoldersOf gives the clusters that have such rows; true where the template is to stay.
	HoldersOf(key atoll.ItemKey) (map[string]bool, error)
	// ClustersLikelyHolding gives the clusters that have rows of Bundles in a namespace that hold a template
	// whose name fits.
	ClustersLikelyHolding(namespace string, fits func(template string) bool) map[string]bool
}

// Templates are the objects that users wrote.
type Templates interface {
	// Template gives the object with a key, shared; false where none is.
	Template(key atoll.ItemKey) (metav1.Object, bool)
	// TemplatesOfKind lists the templates of a kind in a namespace, shared, in no order.
	TemplatesOfKind(gk schema.GroupKind, namespace string) []*unstructured.Unstructured
	// RevisionTemplates returns the stated forms of the template with a key and UID in its kept Revisions,
	// the oldest first, and the next unused number. Unreadable ones are left out; a missing
	// template has none.
	RevisionTemplates(ctx context.Context, key atoll.ItemKey, uid types.UID) (stated []RevisionTemplate, next int64, err error)
}
