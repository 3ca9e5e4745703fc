package direct

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Kind of objects that a Store keeps.
type Kind struct {
	schema.GroupVersionKind
	// Resource in the plural.
	Resource string
	// Namespaced: its objects are in namespaces.
	Namespaced bool
	New        func() client.Object
	NewList    func() client.ObjectList
	// Default sets the schema's defaults in an object; nil: there are none.
	Default func(client.Object)
}

// ClusterKind describes Clusters, which are the members.
func ClusterKind() Kind {
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

// SliceKind describes TargetSlices, which hold the rows.
func SliceKind() Kind {
	return Kind{
		GroupVersionKind: enginev1.GroupVersion.WithKind("TargetSlice"), Resource: "targetslices",
		New:     func() client.Object { return &enginev1.TargetSlice{} },
		NewList: func() client.ObjectList { return &enginev1.TargetSliceList{} },
	}
}

// RevisionKind describes Revisions, which hold content.
func RevisionKind() Kind {
	return Kind{
		GroupVersionKind: enginev1.GroupVersion.WithKind("Revision"), Resource: "revisions",
		New:     func() client.Object { return &enginev1.Revision{} },
		NewList: func() client.ObjectList { return &enginev1.RevisionList{} },
	}
}

// BundleKind describes Bundles, which list what goes together. Only the hub makes them, always with a placement.
func BundleKind() Kind {
	return Kind{
		GroupVersionKind: v1alpha1.GroupVersion.WithKind("Bundle"), Resource: "bundles", Namespaced: true,
		New:     func() client.Object { return &v1alpha1.Bundle{} },
		NewList: func() client.ObjectList { return &v1alpha1.BundleList{} },
		Default: func(obj client.Object) { applyBundleDefaults(&obj.(*v1alpha1.Bundle).Spec) },
	}
}

// applyBundleDefaults sets in spec the defaults that the schema of Bundles gives.
func applyBundleDefaults(spec *v1alpha1.BundleSpec) {
	scheduling := &spec.Placement.ReplicaScheduling
	if o := scheduling.Ordinals; o != nil && o.Size == 0 {
		o.Size = 1000
	}
	if f := spec.Placement.Failback; f != nil {
		f.Policy = cmp.Or(f.Policy, v1alpha1.FailbackNever)
	}
	if r := spec.Rollout; r != nil {
		r.Type = cmp.Or(r.Type, v1alpha1.RolloutAll)
	}
	spec.Removal.Mode = cmp.Or(spec.Removal.Mode, v1alpha1.RemoveDelete)
	if spec.Removal.Budget == nil {
		budget := intstr.FromString("10%")
		spec.Removal.Budget = &budget
	}
}

func (k Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}
