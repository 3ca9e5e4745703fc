package direct

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Kind of objects that a Store keeps.
type Kind struct {
	schema.GroupVersionKind
	// Resource in the plural.
	Resource string
	New      func() client.Object
	NewList  func() client.ObjectList
	// Default what the schema gives to an object that does not say it; nil: nothing.
	Default func(client.Object)
}

// Clusters are the members.
func Clusters() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("Cluster"), Resource: "clusters",
		New:     func() client.Object { return &v1alpha1.Cluster{} },
		NewList: func() client.ObjectList { return &v1alpha1.ClusterList{} },
		Default: func(obj client.Object) {
			if c := obj.(*v1alpha1.Cluster).Spec.Connection; c != nil && c.Type == "" {
				c.Type = v1alpha1.ConnectionStream
			}
		},
	}
}

// Slices hold the rows.
func Slices() Kind {
	return Kind{
		GroupVersionKind: enginev1.GroupVersion.WithKind("TargetSlice"), Resource: "targetslices",
		New:     func() client.Object { return &enginev1.TargetSlice{} },
		NewList: func() client.ObjectList { return &enginev1.TargetSliceList{} },
	}
}

// Revisions hold content.
func Revisions() Kind {
	return Kind{
		GroupVersionKind: enginev1.GroupVersion.WithKind("Revision"), Resource: "revisions",
		New:     func() client.Object { return &enginev1.Revision{} },
		NewList: func() client.ObjectList { return &enginev1.RevisionList{} },
	}
}

// Bundles say what goes together. They are in namespaces, and only written directly: the
// API gives what their schema says of placements.
func Bundles() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("Bundle"), Resource: "bundles",
		New:     func() client.Object { return &v1alpha1.Bundle{} },
		NewList: func() client.ObjectList { return &v1alpha1.BundleList{} },
	}
}

func (k Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}
