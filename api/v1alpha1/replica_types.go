package v1alpha1

// ReplicaScheduling specifies how replicas are assigned to the chosen clusters.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replicaSchedulingType) || self.replicaSchedulingType == 'Divided' || !(has(self.replicaDivisionPreference) || has(self.weightPreference) || has(self.onShortage) || has(self.ordinals) || has(self.replicaOverrides) || has(self.overflow))",message="replicaDivisionPreference, weightPreference, onShortage, ordinals, replicaOverrides and overflow need replicaSchedulingType Divided"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.replicaDivisionPreference) || self.replicaDivisionPreference != 'Aggregated' || !has(self.weightPreference.dynamicWeight)",message="Aggregated goes by available replicas anyway: dynamicWeight is for Weighted"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.weightPreference.staticWeightList) || !((has(self.replicaDivisionPreference) && self.replicaDivisionPreference == 'Aggregated') || has(self.weightPreference.dynamicWeight)) || self.weightPreference.staticWeightList.all(e, !has(e.weight))",message="Aggregated and dynamicWeight take no weights: entries of staticWeightList may only state minReplicas and maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.weightPreference.staticWeightList) || (has(self.replicaDivisionPreference) && self.replicaDivisionPreference == 'Aggregated') || has(self.weightPreference.dynamicWeight) || self.weightPreference.staticWeightList.all(e, has(e.weight))",message="every entry of staticWeightList needs a weight"
type ReplicaScheduling struct {
	// ReplicaSchedulingType: Duplicated gives every cluster the whole number that the template
	// states; Divided divides that number among the clusters. Default: Divided where another field of
	// replicaScheduling is set, else Duplicated. (Karmada defaults to Divided wherever
	// replicaScheduling is set.)
	// +optional
	// +kubebuilder:validation:Enum=Duplicated;Divided
	ReplicaSchedulingType ReplicaSchedulingType `json:"replicaSchedulingType,omitempty"`
	// ReplicaDivisionPreference for Divided. Weighted divides by weightPreference. Aggregated
	// uses as few clusters as it can. Running replicas stay. Clusters that run some are filled
	// first, up to their free capacity, then those with the most free capacity. A smaller
	// number takes first from the clusters with the fewest replicas. A cluster with unknown
	// free capacity gets the replicas that no other cluster has capacity for. Default Weighted.
	// +optional
	// +kubebuilder:validation:Enum=Weighted;Aggregated
	ReplicaDivisionPreference ReplicaDivisionPreference `json:"replicaDivisionPreference,omitempty"`
	// WeightPreference for Weighted; without one, all clusters weigh the same. Under
	// Aggregated it states bounds alone.
	// +optional
	WeightPreference *ClusterPreferences `json:"weightPreference,omitempty"`
	// OnShortage, for Divided: what happens to a workload when clusters at their bounds cannot
	// take all replicas. PlaceWhatFits (default) places as many as fit. PlaceNothing adds none,
	// so that running replicas stay unchanged. The Bundle's condition ReplicasPlaced reports
	// how many replicas are not placed. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=PlaceWhatFits;PlaceNothing
	OnShortage OnShortage `json:"onShortage,omitempty"`
	// Overflow, for Divided: where replicas go that have no place in the chosen clusters, by free
	// capacity, stated capacity or maxReplicas. None (default): nowhere. Allow: with
	// clusterAffinities, to the groups after the one in use, in their order; else to the fitting
	// clusters beyond maxClusters and maxGroups, the best first. Running replicas stay until the
	// clusters before have places for all replicas. The last that was used leaves first, after its
	// replacements are healthy. A smaller number takes from the last one first. Disconnected
	// clusters get nothing new. StatefulSets stay in the chosen clusters. (Karmada has
	// overflowAffinities.)
	// +optional
	// +kubebuilder:validation:Enum=None;Allow
	Overflow Overflow `json:"overflow,omitempty"`
	// Ordinals, for Divided: StatefulSets are divided too. Each cluster of a StatefulSet has
	// its own range of ordinals: it gets spec.replicas and spec.ordinals.start. A range stays
	// as long as the cluster is placed. Without this field (default), a StatefulSet goes whole
	// to one cluster. Deleting the field gathers a StatefulSet in the cluster that may hold
	// most of it, under the ordinals of that cluster. Not in Karmada.
	// +optional
	Ordinals *OrdinalRanges `json:"ordinals,omitempty"`
	// ReplicaOverrides, for Divided: Forbid (default) refuses overrides of divided replicas.
	// Allow lets an override set the replicas of a cluster, whatever the bounds and weights;
	// the other clusters divide the rest. If overrides sum to more than the template states,
	// the condition ReplicasPlaced reports the sum. A StatefulSet that stays whole takes the
	// override of its cluster. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=Forbid;Allow
	ReplicaOverrides ReplicaOverrides `json:"replicaOverrides,omitempty"`
}

// ReplicaOverrides specifies whether overrides may set assigned replicas.
type ReplicaOverrides string

// The treatments of overrides of divided replicas.
const (
	ForbidReplicaOverrides ReplicaOverrides = "Forbid"
	AllowReplicaOverrides  ReplicaOverrides = "Allow"
)

// OrdinalRanges specifies how the ordinals of divided StatefulSets are assigned to clusters.
type OrdinalRanges struct {
	// Size of a range. The first range begins at the template's spec.ordinals.start, the next
	// one that many ordinals later, and so on. No cluster runs more replicas of a StatefulSet
	// than the size. Existing ranges stay when the size changes. Default 1000.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Size int32 `json:"size,omitempty"`
}

// ReplicaSchedulingType is Duplicated or Divided.
type ReplicaSchedulingType string

// The scheduling types.
const (
	Duplicated ReplicaSchedulingType = "Duplicated"
	Divided    ReplicaSchedulingType = "Divided"
)

// ReplicaDivisionPreference is the method of the division.
type ReplicaDivisionPreference string

// The division preferences.
const (
	DivideWeighted   ReplicaDivisionPreference = "Weighted"
	DivideAggregated ReplicaDivisionPreference = "Aggregated"
)

// OnShortage is the action where not all replicas can be placed.
type OnShortage string

// The actions for a shortage.
const (
	PlaceWhatFits OnShortage = "PlaceWhatFits"
	PlaceNothing  OnShortage = "PlaceNothing"
)

// Overflow is whether replicas go beyond the chosen clusters.
type Overflow string

// The treatments of replicas without a place.
const (
	OverflowNone  Overflow = "None"
	OverflowAllow Overflow = "Allow"
)

// ClusterPreferences holds weights and bounds.
//
// +kubebuilder:validation:XValidation:rule="has(self.staticWeightList) || has(self.dynamicWeight)",message="state staticWeightList or dynamicWeight"
type ClusterPreferences struct {
	// StaticWeightList: a cluster's weight is the largest of the entries that match it, and its
	// bounds are their tightest. A cluster that no entry matches gets no replicas. If no entry
	// matches a chosen cluster, all chosen clusters weigh the same. With maxClusters or
	// spreadConstraints, a cluster without a weight is chosen only while none with a weight fits.
	// With dynamicWeight, and under Aggregated, entries have no weights, and a cluster that no
	// entry matches has no bounds. (Karmada ignores the list there.)
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	StaticWeightList []StaticClusterWeight `json:"staticWeightList,omitempty"`
	// DynamicWeight AvailableReplicas: running replicas stay, and new replicas are divided by
	// the free capacity of each cluster. The free capacity is the report of the agent
	// (Cluster's status.resources.freeCapacity) minus the replicas that the hub assigned since. A
	// smaller number takes from each cluster in proportion. The free capacity is unknown where
	// the agent has not reported it, or reportedRoom is Ignore. Such a cluster keeps its
	// replicas and gets those that no other cluster has capacity for. Selectors and affinities
	// of pods are ignored.
	// +optional
	// +kubebuilder:validation:Enum=AvailableReplicas
	DynamicWeight DynamicWeight `json:"dynamicWeight,omitempty"`
}

// DynamicWeight is the measure that weights follow.
type DynamicWeight string

// WeighAvailableReplicas weighs clusters by the replicas that their free capacity can hold.
const WeighAvailableReplicas DynamicWeight = "AvailableReplicas"

// StaticClusterWeight gives a weight, and bounds, to the clusters that match.
//
// +kubebuilder:validation:XValidation:rule="has(self.weight) || has(self.minReplicas) || has(self.maxReplicas)",message="state weight, minReplicas or maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas is above maxReplicas"
type StaticClusterWeight struct {
	// TargetCluster that gets the weight.
	TargetCluster ClusterAffinity `json:"targetCluster"`
	// Weight, from 1 to 1,000,000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Weight int64 `json:"weight,omitempty"`
	// MinReplicas of each divided workload that such a cluster gets before the rest is divided.
	// If the replicas do not suffice for all minimums, they are divided up to these. Not in
	// Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MinReplicas int64 `json:"minReplicas,omitempty"`
	// MaxReplicas of each divided workload that such a cluster gets. It prevails over another
	// entry's minReplicas. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MaxReplicas int64 `json:"maxReplicas,omitempty"`
}
