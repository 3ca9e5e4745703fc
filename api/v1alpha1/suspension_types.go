package v1alpha1

import "slices"

// Suspension stops a part of what a policy does. No time ends it: a person removes it.
type Suspension struct {
	// Dispatching: true stops every change of every cluster: new revisions, first copies, the copies of moves, and shares of divided
	// replicas. Running workloads stay, and members continue to correct their drift. Removals of whole copies continue, but no copy is removed before
	// the one that replaces it runs. A deleted template waits with the other changes. It excludes dispatchingOnClusters.
	// +optional
	Dispatching bool `json:"dispatching,omitempty"`
	// DispatchingOnClusters stops the changes of some clusters. The others continue. The suspended ones are outside the bounds of a
	// rollout, block no stage, and catch up within the same bounds.
	// +optional
	DispatchingOnClusters *SuspendedClusters `json:"dispatchingOnClusters,omitempty"`
	// Scheduling: true keeps the last decision: no cluster is chosen or dropped, and no replica moves, whatever happens to clusters. Chosen
	// clusters still get changes. A Bundle without a decision gets none.
	// +optional
	Scheduling bool `json:"scheduling,omitempty"`
}

// SuspendedClusters are the clusters whose changes are suspended.
type SuspendedClusters struct {
	// ClusterNames of Clusters. A name without a Cluster counts when the Cluster is created.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	ClusterNames []string `json:"clusterNames"`
}

// SuspendsDispatching reports whether all changes of all clusters are suspended.
func (s *Suspension) SuspendsDispatching() bool { return s != nil && s.Dispatching }

// SuspendsScheduling reports whether the last decision about clusters is kept.
func (s *Suspension) SuspendsScheduling() bool { return s != nil && s.Scheduling }

// HasSuspendedClusters reports whether the changes of some clusters are suspended.
func (s *Suspension) HasSuspendedClusters() bool {
	return s != nil && s.DispatchingOnClusters != nil && len(s.DispatchingOnClusters.ClusterNames) > 0
}

// SuspendsChanges reports whether the changes of all clusters are suspended, or those of some.
func (s *Suspension) SuspendsChanges() bool {
	return s.SuspendsDispatching() || s.HasSuspendedClusters()
}

// SuspendsByName reports whether the changes of one cluster are suspended by its name, while others go on.
func (s *Suspension) SuspendsByName(cluster string) bool {
	return s.HasSuspendedClusters() && !s.Dispatching && slices.Contains(s.DispatchingOnClusters.ClusterNames, cluster)
}
