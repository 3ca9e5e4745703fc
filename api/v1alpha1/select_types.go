package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpreadConstraint spreads the chosen clusters over groups: clusters that share a
// field or the value of a label. All constraints of a placement hold together.
//
// A cluster without the field, label or property is in no group. DoNotSchedule refuses it, with that
// reason; ScheduleAnyway may choose it, and counts it in no group. A cluster that runs the
// Bundle never loses it because of a lost label or property.
//
// +kubebuilder:validation:XValidation:rule="[has(self.spreadByField), has(self.spreadByLabel), has(self.spreadByProperty)].filter(x, x).size() <= 1",message="give one of spreadByField, spreadByLabel and spreadByProperty"
// +kubebuilder:validation:XValidation:rule="!has(self.minGroups) || !has(self.maxGroups) || self.minGroups <= self.maxGroups",message="minGroups is more than maxGroups"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSkew) || has(self.spreadByLabel) || has(self.spreadByProperty) || (has(self.spreadByField) && self.spreadByField != 'cluster')",message="maxSkew has no effect on clusters, each of which is a group of its own"
type SpreadConstraint struct {
	// SpreadByField: cluster (each is a group of its own), region, zone or provider, as the
	// Cluster's spec has them. Only the name identifies a zone. A cluster with several zones is in the group of each.
	// Default cluster, where spreadByLabel and spreadByProperty are not given either.
	// +optional
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	SpreadByField SpreadField `json:"spreadByField,omitempty"`
	// SpreadByLabel is the key of a label of Clusters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	SpreadByLabel string `json:"spreadByLabel,omitempty"`
	// SpreadByProperty is the name of a property that agents report and HubSettings lists.
	// Clusters with the same value are a group. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	SpreadByProperty string `json:"spreadByProperty,omitempty"`
	// MinGroups that have a chosen cluster, from 1 to 10000. Default 1. If there are fewer
	// groups, whenUnsatisfiable specifies what happens.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinGroups int32 `json:"minGroups,omitempty"`
	// MaxGroups that have a chosen cluster, from 1 to 10000. Omitted: any number. It always
	// bounds new choices.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxGroups int32 `json:"maxGroups,omitempty"`
	// MaxSkew is by how many chosen clusters the groups may differ, from 1 to 10000.
	// Omitted: by any number. Groups without a chosen cluster count, as 0, if
	// maxGroups leaves room for them. Not for spreadByField cluster.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxSkew int32 `json:"maxSkew,omitempty"`
	// WhenUnsatisfiable: DoNotSchedule (default) keeps to maxSkew by choosing fewer clusters.
	// If minGroups cannot be met, it changes nothing: no cluster is added, and running
	// workloads stay and report it. ScheduleAnyway approaches minGroups and maxSkew as far as
	// possible.
	// +optional
	// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
	WhenUnsatisfiable UnsatisfiableAction `json:"whenUnsatisfiable,omitempty"`
}

// SpreadField is a field of Clusters that groups them.
type SpreadField string

// The fields.
const (
	SpreadByCluster  SpreadField = "cluster"
	SpreadByRegion   SpreadField = "region"
	SpreadByZone     SpreadField = "zone"
	SpreadByProvider SpreadField = "provider"
)

// UnsatisfiableAction is the action where a spread constraint cannot be met, by the terms of
// pods' topologySpreadConstraints.
type UnsatisfiableAction string

// The actions.
const (
	DoNotSchedule  UnsatisfiableAction = "DoNotSchedule"
	ScheduleAnyway UnsatisfiableAction = "ScheduleAnyway"
)

// Score rates clusters from 0 to 1000, on a scale of its own that does not depend on
// which other clusters there are.
//
// +kubebuilder:validation:XValidation:rule="(self.name == 'ResourceAvailable') == has(self.resource)",message="resource is for the score ResourceAvailable, and needed there"
// +kubebuilder:validation:XValidation:rule="self.name == 'ResourceAvailable' || !has(self.full)",message="full is for the score ResourceAvailable"
// +kubebuilder:validation:XValidation:rule="(self.name == 'Property') == has(self.property)",message="property is for the score Property, and needed there"
// +kubebuilder:validation:XValidation:rule="(self.name == 'ClusterScore') == has(self.measure)",message="measure is for the score ClusterScore, and needed there"
// +kubebuilder:validation:XValidation:rule="(self.name == 'Affinity' || self.name == 'AntiAffinity') == has(self.bundles)",message="bundles is for the scores Affinity and AntiAffinity, and needed there"
// +kubebuilder:validation:XValidation:rule="(self.name == 'ClusterAffinity') == has(self.clusterAffinity)",message="clusterAffinity is for the score ClusterAffinity, and needed there"
type Score struct {
	// Name: Balance prefers clusters with few assigned pods for their size. The size is the
	// number of pods that they can hold (110 where that is not reported): 1000 for none, 500
	// for as many as they can hold. A Bundle counts with the replicas that its objects state
	// for that cluster, and with 1 at least. Only ResourceAvailable counts workloads that Atoll
	// did not place. Steady gives 1000 where the Bundle runs already; it matters where
	// rescheduling moves the Bundle. ResourceAvailable prefers clusters with much of a resource
	// free. Property rates a number that clusters report. ClusterScore reads ClusterScore
	// objects. Affinity prefers clusters near other Bundles, AntiAffinity clusters far from
	// them. ClusterAffinity prefers the clusters that clusterAffinity selects.
	// +kubebuilder:validation:Enum=Balance;Steady;ResourceAvailable;Property;ClusterScore;Affinity;AntiAffinity;ClusterAffinity
	Name ScoreName `json:"name"`
	// Weight of this score among the others, from 1 to 100. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
	// Resource for ResourceAvailable: cpu, memory, or any other that nodes offer,
	// such as nvidia.com/gpu. A cluster that reports nothing of it scores 0.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Resource string `json:"resource,omitempty"`
	// Full is the free amount that scores 1000, such as "64" or "256Gi"; less scores in
	// proportion. Omitted: the total of the cluster's ready nodes.
	// +optional
	Full *resource.Quantity `json:"full,omitempty"`
	// Property for the score Property.
	// +optional
	Property *PropertyScore `json:"property,omitempty"`
	// Measure for the score ClusterScore, by its name. A cluster that no valid
	// ClusterScore rates by it scores 0.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Measure string `json:"measure,omitempty"`
	// Bundles that Affinity prefers near, and AntiAffinity far.
	// +optional
	Bundles *NearBundles `json:"bundles,omitempty"`
	// ClusterAffinity for the score ClusterAffinity: the clusters that it selects score 1000,
	// all others 0. Several such scores with weights order clusters by preference.
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`
}

// PropertyScore rates a property of clusters that the hub's administrator listed.
type PropertyScore struct {
	// Name of the property. A cluster without it, or with another value than a number, scores
	// 0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Name string `json:"name"`
	// From is the value that scores 0. Values between From and To score in proportion. From may
	// be the greater: then less is better.
	From resource.Quantity `json:"from"`
	// To is the value that scores 1000.
	To resource.Quantity `json:"to"`
}

// NearBundles selects other Bundles of the same namespace, by name and by the selector. The
// score Affinity is the share of these Bundles, in thousandths, that have a cluster in the same
// group. AntiAffinity is the share that have none.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.labelSelector)",message="give names or labelSelector"
type NearBundles struct {
	// Names of Bundles, or of their policies or annotated objects.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
	// LabelSelector over the labels of Bundles.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Within is the group in which Bundles are near: the same cluster (default), region, zone
	// or provider.
	// +optional
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	Within SpreadField `json:"within,omitempty"`
}

// Rescheduling specifies when running workloads move to clusters with better scores.
//
// +kubebuilder:validation:XValidation:rule="(has(self.when) && self.when == 'WhenBetter') || !(has(self.minDwell) || has(self.moveCost))",message="minDwell and moveCost are for WhenBetter"
type Rescheduling struct {
	// When: OnEdit (default), only when the placement is edited. WhenBetter also when another
	// cluster scores better than a chosen one by more than moveCost. Then the Bundle moves, one
	// cluster at a time, and leaves the old cluster when it is healthy in the new one.
	// +optional
	// +kubebuilder:validation:Enum=OnEdit;WhenBetter
	When ReschedulingWhen `json:"when,omitempty"`
	// MinDwell is how long the Bundle stays on a cluster before it moves on, from 0s to
	// 8760h. Default 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="minDwell must be a duration from 0s to 8760h, such as 10m"
	MinDwell *metav1.Duration `json:"minDwell,omitempty"`
	// MoveCost is by how much of the 1000 of the scores another cluster must be better,
	// from 0 to 1000. Default 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MoveCost *int32 `json:"moveCost,omitempty"`
}

// ReschedulingWhen is the occasion on which running workloads move.
type ReschedulingWhen string

// The occasions.
const (
	RescheduleOnEdit     ReschedulingWhen = "OnEdit"
	RescheduleWhenBetter ReschedulingWhen = "WhenBetter"
)

// ScoreName is the name of a score.
type ScoreName string

// The scores.
const (
	ScoreBalance           ScoreName = "Balance"
	ScoreSteady            ScoreName = "Steady"
	ScoreResourceAvailable ScoreName = "ResourceAvailable"
	ScoreProperty          ScoreName = "Property"
	ScoreCluster           ScoreName = "ClusterScore"
	ScoreAffinity          ScoreName = "Affinity"
	ScoreAntiAffinity      ScoreName = "AntiAffinity"
	ScoreClusterAffinity   ScoreName = "ClusterAffinity"
)

// DecisionGroup names a part of the chosen clusters.
type DecisionGroup struct {
	// GroupName of the group.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	GroupName string `json:"groupName"`
	// LabelSelector over the Clusters' labels. The last group may have an empty one: it takes
	// the clusters that are in no other group.
	LabelSelector metav1.LabelSelector `json:"labelSelector"`
}

// WorkloadAffinity places a Bundle by where other Bundles of its namespace are. Both terms are required for new
// choices: a copy that runs is neither moved nor removed because of another Bundle or of a label.
//
// +kubebuilder:validation:XValidation:rule="has(self.affinity) || has(self.antiAffinity)",message="give affinity or antiAffinity"
type WorkloadAffinity struct {
	// Affinity: a cluster is chosen only where another member of the group is, or is to be. The first member of a
	// group is free to choose.
	// +optional
	Affinity *WorkloadAffinityTerm `json:"affinity,omitempty"`
	// AntiAffinity: no cluster is chosen where another member of the group is, or is to be.
	// +optional
	AntiAffinity *WorkloadAffinityTerm `json:"antiAffinity,omitempty"`
}

// WorkloadAffinityTerm names groups of Bundles by a label of their templates.
type WorkloadAffinityTerm struct {
	// GroupByLabelKey is the key of a label in metadata.labels of templates. Bundles of one namespace whose placements state the key, and
	// whose templates have the same value, are members of one group. A Bundle with several values is in several groups.
	// The term does nothing for a Bundle without the label on a template. Labels of dependencies do not count.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	GroupByLabelKey string `json:"groupByLabelKey"`
}
