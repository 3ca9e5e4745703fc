package v1alpha1

// ReplicaScheduling says how replicas are spread over the chosen clusters.
//
// +kubebuilder:validation:XValidation:rule="(has(self.replicaSchedulingType) && self.replicaSchedulingType == 'Divided') || !(has(self.replicaDivisionPreference) || has(self.weightPreference) || has(self.onShortage) || has(self.ordinals) || has(self.replicaOverrides))",message="replicaDivisionPreference, weightPreference, onShortage, ordinals and replicaOverrides need replicaSchedulingType Divided"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.replicaDivisionPreference) || self.replicaDivisionPreference != 'Aggregated' || !has(self.weightPreference.dynamicWeight)",message="Aggregated goes by available replicas anyway: dynamicWeight is for Weighted"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.weightPreference.staticWeightList) || !((has(self.replicaDivisionPreference) && self.replicaDivisionPreference == 'Aggregated') || has(self.weightPreference.dynamicWeight)) || self.weightPreference.staticWeightList.all(e, !has(e.weight))",message="Aggregated and dynamicWeight take no weights: entries of staticWeightList may only state minReplicas and maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.weightPreference) || !has(self.weightPreference.staticWeightList) || (has(self.replicaDivisionPreference) && self.replicaDivisionPreference == 'Aggregated') || has(self.weightPreference.dynamicWeight) || self.weightPreference.staticWeightList.all(e, has(e.weight))",message="every entry of staticWeightList needs a weight"
type ReplicaScheduling struct {
	// ReplicaSchedulingType: Duplicated (default) gives every cluster the whole
	// number that the template states; Divided shares that number out. (Karmada
	// defaults to Divided.)
	// +optional
	// +kubebuilder:default=Duplicated
	// +kubebuilder:validation:Enum=Duplicated;Divided
	ReplicaSchedulingType ReplicaSchedulingType `json:"replicaSchedulingType,omitempty"`
	// ReplicaDivisionPreference for Divided. Weighted divides by weightPreference.
	// Aggregated uses as few clusters as it can: what runs stays, clusters that run
	// some are filled first, as far as they have room, then those with the most room,
	// and a smaller number takes from those first that have the least. A cluster whose
	// room nobody knows gets what no other has room for. Default Weighted.
	// +optional
	// +kubebuilder:validation:Enum=Weighted;Aggregated
	ReplicaDivisionPreference ReplicaDivisionPreference `json:"replicaDivisionPreference,omitempty"`
	// WeightPreference for Weighted; without one, all clusters weigh the same. Under
	// Aggregated it states bounds alone.
	// +optional
	WeightPreference *ClusterPreferences `json:"weightPreference,omitempty"`
	// OnShortage, for Divided: what happens to a workload of which not all replicas
	// have a place, since clusters are at their bounds. PlaceWhatFits (default) places
	// those that have one; PlaceNothing adds none, so that what runs stays as it is.
	// Either way the Bundle's condition ReplicasPlaced tells how many have none. Not
	// in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=PlaceWhatFits;PlaceNothing
	OnShortage OnShortage `json:"onShortage,omitempty"`
	// Ordinals, for Divided: StatefulSets are divided too. Each cluster that runs some
	// of one has a range of ordinals of its own: it gets spec.replicas and
	// spec.ordinals.start. A range stays where it is as long as the cluster is placed.
	// Without it (default), a StatefulSet goes whole to one cluster. Taking it away
	// again gathers a StatefulSet where most of it may be, under the ordinals that are
	// there. Not in Karmada.
	// +optional
	Ordinals *OrdinalRanges `json:"ordinals,omitempty"`
	// ReplicaOverrides, for Divided: Forbid (default) refuses overrides of the replicas
	// of what is divided. Allow lets an override that targets a cluster set them there:
	// that is the cluster's share, bounds and weights aside, and the others divide what
	// it leaves; where overrides alone come to more than the template states, the
	// condition ReplicasPlaced tells the sum. A StatefulSet that stays whole takes that
	// of its cluster. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=Forbid;Allow
	ReplicaOverrides ReplicaOverrides `json:"replicaOverrides,omitempty"`
}

// ReplicaOverrides says whether overrides may set shares.
type ReplicaOverrides string

// What becomes of overrides of divided replicas.
const (
	ForbidReplicaOverrides ReplicaOverrides = "Forbid"
	AllowReplicaOverrides  ReplicaOverrides = "Allow"
)

// OrdinalRanges says how the ordinals of divided StatefulSets are given to clusters.
type OrdinalRanges struct {
	// Size of a range: the first begins where the template's spec.ordinals.start says,
	// the next that many ordinals later, and so on. No cluster runs more of a
	// StatefulSet than that. Ranges that are there when it changes stay. Default 1000.
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

// ReplicaDivisionPreference is how Divided divides.
type ReplicaDivisionPreference string

// The division preferences.
const (
	DivideWeighted   ReplicaDivisionPreference = "Weighted"
	DivideAggregated ReplicaDivisionPreference = "Aggregated"
)

// OnShortage is what happens where not all replicas have a place.
type OnShortage string

// The answers to a shortage.
const (
	PlaceWhatFits OnShortage = "PlaceWhatFits"
	PlaceNothing  OnShortage = "PlaceNothing"
)

// ClusterPreferences holds weights and bounds.
//
// +kubebuilder:validation:XValidation:rule="has(self.staticWeightList) || has(self.dynamicWeight)",message="state staticWeightList or dynamicWeight"
type ClusterPreferences struct {
	// StaticWeightList: a cluster's weight is the sum of the entries that match
	// it; one that none matches gets no replicas. Its bounds are the tightest of those
	// entries. With dynamicWeight, and under Aggregated, entries have no weights, and a
	// cluster that none matches has no bounds. (Karmada ignores the list there.)
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	StaticWeightList []StaticClusterWeight `json:"staticWeightList,omitempty"`
	// DynamicWeight AvailableReplicas: what runs stays, and new replicas are divided
	// by how many more of them each cluster has room for, as its agent reports it
	// (Cluster's status.resources.room) less what the hub promised since. A smaller
	// number takes from each in proportion. A cluster whose room nobody knows, since
	// its agent is old or new or its reportedRoom is Ignore, keeps what it has and
	// gets what no other has room for. Selectors and affinities of pods are not
	// looked at.
	// +optional
	// +kubebuilder:validation:Enum=AvailableReplicas
	DynamicWeight DynamicWeight `json:"dynamicWeight,omitempty"`
}

// DynamicWeight is what weights follow.
type DynamicWeight string

// WeighAvailableReplicas goes by how many more replicas clusters have room for.
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
	// MinReplicas of each divided workload that such a cluster gets before the rest is
	// divided. Where there are not enough for all minimums, they are divided up to
	// them. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MinReplicas int64 `json:"minReplicas,omitempty"`
	// MaxReplicas of each divided workload that such a cluster gets; also where another
	// entry's minReplicas is above it. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	MaxReplicas int64 `json:"maxReplicas,omitempty"`
}
