package v1alpha1

import "slices"

// PolicyDependency is a policy whose Bundles come first.
type PolicyDependency struct {
	// Kind of the policy. Absent: the kind of the policy that states the dependency. A PropagationPolicy may also depend on a
	// ClusterPropagationPolicy, and not the other way round.
	// +optional
	// +kubebuilder:validation:Enum=PropagationPolicy;ClusterPropagationPolicy
	Kind string `json:"kind,omitempty"`
	// Name of the policy. A PropagationPolicy is in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Scope: Cluster waits, in each cluster, for the Bundles of the policy in that cluster. All waits for them in all connected
	// clusters. Absent: Cluster.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;All
	Scope DependencyScope `json:"scope,omitempty"`
	// AcceptedStates of the Bundles of the policy, at their latest revision. Ready: each object is applied and healthy. Applied: each
	// object is applied, healthy or not. Absent: Ready.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=Ready;Applied
	// +listType=set
	AcceptedStates []DependencyState `json:"acceptedStates,omitempty"`
}

// DependencyScope is in which clusters a dependency counts.
type DependencyScope string

// The scopes.
const (
	DependencyCluster DependencyScope = "Cluster"
	DependencyAll     DependencyScope = "All"
)

// DependencyState is a state of a Bundle in a cluster.
type DependencyState string

// The states that a dependency may accept.
const (
	DependencyReady   DependencyState = "Ready"
	DependencyApplied DependencyState = "Applied"
)

// MaxDependencies is how many policies a policy may depend on.
const MaxDependencies = 16

// MaxDependentOverrides is how many override policies a policy may wait for.
const MaxDependentOverrides = 32

// PolicyRef names a policy. The namespace is empty for a ClusterPropagationPolicy.
type PolicyRef struct{ Kind, Namespace, Name string }

func (r PolicyRef) String() string { return r.Kind + " " + r.Name }

// RefFrom returns the policy that a policy, or its Bundle, depends on.
func (d *PolicyDependency) RefFrom(by PolicyRef) PolicyRef {
	out := PolicyRef{Kind: d.Kind, Namespace: by.Namespace, Name: d.Name}
	if out.Kind == "" {
		out.Kind = by.Kind
	}
	if out.Kind != SourcePropagationPolicy {
		out.Namespace = ""
	}
	return out
}

// IsOfAllClusters reports whether the dependency counts in all clusters.
func (d *PolicyDependency) IsOfAllClusters() bool { return d.Scope == DependencyAll }

// AcceptsUnhealthy reports whether the objects need not be healthy.
func (d *PolicyDependency) AcceptsUnhealthy() bool {
	return slices.Contains(d.AcceptedStates, DependencyApplied)
}

// PolicyOf returns the policy of a Bundle in a namespace; the zero value: no policy placed its objects.
func (s *BundleSource) PolicyOf(namespace string) PolicyRef {
	switch s.Kind {
	case SourcePropagationPolicy:
		return PolicyRef{Kind: s.Kind, Namespace: namespace, Name: s.Name}
	case SourceClusterPropagationPolicy:
		return PolicyRef{Kind: s.Kind, Name: s.Name}
	}
	return PolicyRef{}
}
