package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PropagationPolicy specifies which objects of its own namespace go to which clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ppol,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PropagationSpec   `json:"spec"`
	Status PropagationStatus `json:"status,omitempty"`
}

// ClusterPropagationPolicy specifies which objects of any namespace, and which
// cluster-scoped ones, go to which clusters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cppol,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPropagationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PropagationSpec   `json:"spec"`
	Status PropagationStatus `json:"status,omitempty"`
}

// PropagationSpec is shared by both policies.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.placement) && has(self.placementRef))",message="placement and placementRef exclude each other: give one of them"
type PropagationSpec struct {
	// ResourceSelectors select the objects. At least one.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	ResourceSelectors []ResourceSelector `json:"resourceSelectors"`

	// PropagateDeps also sends the objects that the selected ones reference: ConfigMaps,
	// Secrets, ServiceAccounts, PVCs and image pull secrets of pod templates, and the CRDs of
	// custom resources. Default false.
	// +optional
	PropagateDeps bool `json:"propagateDeps,omitempty"`

	// Placement chooses the clusters. Without one, and without placementRef, every
	// cluster that no taint repels.
	// +optional
	Placement PlacementSpec `json:"placement,omitzero"`

	// PlacementRef names a Placement that chooses the clusters, in place of placement:
	// an edit of it is an edit of this policy. Not in Karmada.
	// +optional
	PlacementRef *PlacementRef `json:"placementRef,omitempty"`

	// Priority: where several policies select one object, the highest wins, then
	// the more specific selector, then the older policy. Default 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// Preemption: Always takes objects over from policies of lower priority that
	// already hold them; Never leaves them where they are. A policy holds an object
	// once a cluster has reported on it; until then the best policy gets it.
	// +optional
	// +kubebuilder:default=Never
	// +kubebuilder:validation:Enum=Always;Never
	Preemption PreemptionBehavior `json:"preemption,omitempty"`

	// ConflictResolution: what to do in a member where an object of that name exists that Atoll
	// did not create. Abort leaves it and reports a conflict. AdoptIfSame (not in Karmada)
	// adopts it when all user-owned fields are equal. Overwrite adopts it. Adopted objects are
	// kept on removal.
	// +optional
	// +kubebuilder:default=Abort
	// +kubebuilder:validation:Enum=Abort;AdoptIfSame;Overwrite
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`

	// GroupBy specifies which of the selected objects are placed together as one Bundle. Not in
	// Karmada.
	// +optional
	// +kubebuilder:default={}
	GroupBy GroupBy `json:"groupBy,omitempty"`

	// Removal specifies what happens in a member when an object or a cluster is taken
	// out. Not in Karmada.
	// +optional
	// +kubebuilder:default={}
	Removal Removal `json:"removal,omitempty"`

	// WhenUnfit: what happens where a cluster's labels, fields or NoSchedule taints stop
	// matching. Keep (default) keeps the workload there and reports it. Remove removes it,
	// replacements first. Not in Karmada.
	// +optional
	// +kubebuilder:default=Keep
	// +kubebuilder:validation:Enum=Keep;Remove
	WhenUnfit WhenUnfit `json:"whenUnfit,omitempty"`

	// MoveOrder of a move to another cluster. Surge starts the replacement first, and removes the old
	// copy when the replacement is healthy. Recreate removes the old copy first, and starts the
	// replacement when the old cluster has confirmed the removal: the workload does not run in
	// between. Absent: Recreate where the placement selects one cluster and the Bundle has a
	// PersistentVolumeClaim, or a StatefulSet that goes to clusters as a whole; a disconnected cluster then delays no
	// replacement. Else Surge. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=Surge;Recreate
	MoveOrder MoveOrder `json:"moveOrder,omitempty"`

	// Rollout bounds how fast a change of templates or override rules reaches the clusters. Absent: a change
	// keeps maxUnavailable 25% of more than 4 clusters, and the first installation goes to all clusters at
	// once. Not in Karmada.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// Suspension stops changes of clusters, or decisions about clusters, until the field is removed. Running workloads stay. Absent: nothing is
	// suspended.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`

	// DependsOn are policies whose Bundles come first. No cluster takes a new revision, the first one included, before they are in an
	// accepted state. Running workloads stay. If both are deleted, the Bundles of this policy leave first. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	DependsOn []PolicyDependency `json:"dependsOn,omitempty"`

	// DependentOverrides are names of override policies that must exist before anything of this policy is sent: OverridePolicies of its
	// namespace, or ClusterOverridePolicies for a ClusterPropagationPolicy. They count until a Bundle has its first revision.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	DependentOverrides []string `json:"dependentOverrides,omitempty"`

	// ItemRules specify how members treat objects. For each field, the first rule counts that selects
	// the object and states the field. Annotations of the object win over rules:
	// atoll.dev/update, atoll.dev/ignore-fields, atoll.dev/drift, atoll.dev/conflict-resolution and
	// atoll.dev/removal. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	ItemRules []ItemRule `json:"itemRules,omitempty"`
}

// PreemptionBehavior of a policy.
type PreemptionBehavior string

// The preemption behaviours.
const (
	PreemptAlways PreemptionBehavior = "Always"
	PreemptNever  PreemptionBehavior = "Never"
)

// ConflictResolution of a policy.
type ConflictResolution string

// The conflict resolutions.
const (
	ConflictAbort       ConflictResolution = "Abort"
	ConflictAdoptIfSame ConflictResolution = "AdoptIfSame"
	ConflictOverwrite   ConflictResolution = "Overwrite"
)

// WhenUnfit of a policy.
type WhenUnfit string

// The actions for a cluster that stops fitting.
const (
	UnfitKeep   WhenUnfit = "Keep"
	UnfitRemove WhenUnfit = "Remove"
)

// MoveOrder of a policy.
type MoveOrder string

// The orders of a move to another cluster.
const (
	MoveSurge    MoveOrder = "Surge"
	MoveRecreate MoveOrder = "Recreate"
)

// GroupBy of a policy.
//
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Label') == has(self.labelKey)",message="labelKey is for type Label, and needed there"
type GroupBy struct {
	// Type: Namespace makes one Bundle of all objects that the policy selects in one namespace,
	// Object one per object, Label one per value of a label (objects without it: one Bundle of
	// their own).
	// +optional
	// +kubebuilder:default=Namespace
	// +kubebuilder:validation:Enum=Namespace;Object;Label
	Type GroupByType `json:"type,omitempty"`
	// LabelKey for type Label, such as app.kubernetes.io/instance.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	LabelKey string `json:"labelKey,omitempty"`
}

// GroupByType is how objects are grouped.
type GroupByType string

// The groupings.
const (
	GroupByNamespace GroupByType = "Namespace"
	GroupByObject    GroupByType = "Object"
	GroupByLabel     GroupByType = "Label"
)

// Removal of a policy.
type Removal struct {
	// Mode: Delete (default) deletes in the member the objects that Atoll created there. Orphan
	// keeps them and gives up their ownership.
	// +optional
	// +kubebuilder:default=Delete
	// +kubebuilder:validation:Enum=Delete;Orphan
	Mode RemovalMode `json:"mode,omitempty"`
	// Budget is how many of a Bundle's clusters one edit of policy, placement, taint or
	// annotation may remove without `atoll confirm`. It is a number or a percentage; a
	// percentage counts for Bundles of more than 10 clusters. Default 10%.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:XIntOrString
	Budget *intstr.IntOrString `json:"budget,omitempty"`
}

// RemovalMode of a policy.
type RemovalMode string

// The removal modes.
const (
	RemoveDelete RemovalMode = "Delete"
	RemoveOrphan RemovalMode = "Orphan"
	// RemoveConfirm is a mode of single objects: as Delete, after a confirmation.
	RemoveConfirm RemovalMode = "Confirm"
	// RemoveLast is a mode of single objects: as Delete, after all others of the Bundle that go.
	RemoveLast RemovalMode = "Last"
)

// ResourceSelector chooses objects by kind, and by name or labels, or all of a
// kind.
type ResourceSelector struct {
	// APIVersion of the objects, such as apps/v1. Only the group counts. With kind "*", "*" stands
	// for all groups, GROUP/* for one, and v1 for the core group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind of the objects. "*", in propagation policies, stands for all kinds but those that
	// machinery makes: objects of a controller, the API server's RBAC, the hub's own, Namespaces.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Namespace of the objects. In a namespaced policy only its own; in a cluster
	// policy empty means every namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the object. With a name, labelSelector is ignored.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// LabelSelector over the objects' labels. Ignored where a name is set.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// PlacementSpec chooses clusters and divides replicas among them.
type PlacementSpec struct {
	// ClusterAffinity narrows the clusters. Without one, all.
	// +optional
	ClusterAffinity *ClusterAffinity `json:"clusterAffinity,omitempty"`
	// ClusterAffinities are groups of clusters in order of preference; excludes clusterAffinity.
	// The first group whose clusters fit and can be chosen gets the Bundle. For replicas that are
	// divided by free capacity, the group must also have capacity for all of them, as far as that
	// is known; if no group has it, the first group in which clusters can be chosen. The group
	// keeps the Bundle while any part of it stays there, also if the Bundle grows beyond the
	// capacity. The next group is used if the whole Bundle must leave and no other cluster of the
	// group fits. Rows keep the name of their group, and failback specifies when an earlier group is
	// used again. If no group has a fitting cluster, running workloads are kept. Other parts of the
	// placement apply to every group.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=affinityName
	ClusterAffinities []ClusterAffinityTerm `json:"clusterAffinities,omitempty"`
	// Failback specifies when a group of clusterAffinities that comes earlier is used again.
	// Not in Karmada, which never goes back by itself.
	// +optional
	Failback *Failback `json:"failback,omitempty"`
	// ClusterSets: a cluster must be in at least one of them. Empty: any cluster that the
	// namespace may use. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	ClusterSets []string `json:"clusterSets,omitempty"`
	// CELSelector is an expression that is true of a cluster, such as "cluster.labels['env'] ==
	// 'prod' && cluster.region.startsWith('eu-')". It can read cluster.name, labels, region,
	// zone, provider, sets and, by literal name, the properties that HubSettings lists. In
	// addition to CEL's own functions it has quantity('64Gi') and versionAtLeast('1.31',
	// '1.30'). If the evaluation fails, for example because of a missing key, the cluster does
	// not fit. Its cost is bounded. Empty: any cluster. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CELSelector string `json:"celSelector,omitempty"`
	// APIs that a cluster must serve, all of them. The kinds of the Bundle's own items need no
	// entry. A cluster that has not reported its APIs yet passes. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	APIs []ServedAPI `json:"apis,omitempty"`
	// WorkloadAffinity keeps the Bundle together with other Bundles of its namespace, or apart from them.
	// +optional
	WorkloadAffinity *WorkloadAffinity `json:"workloadAffinity,omitempty"`
	// ClusterTolerations tolerate taints of clusters, with the meaning of a pod's tolerations
	// in core/v1, tolerationSeconds included.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	ClusterTolerations []corev1.Toleration `json:"clusterTolerations,omitempty"`
	// MaxClusters is how many of the fitting clusters are chosen, the best first, from 1 to
	// 1000000. Omitted: all of them. A cluster that runs the Bundle and still fits keeps it,
	// whatever the scores of other clusters. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxClusters int32 `json:"maxClusters,omitempty"`
	// SpreadConstraints spread the clusters over regions, zones, providers or values of
	// a label.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	SpreadConstraints []SpreadConstraint `json:"spreadConstraints,omitempty"`
	// Scores rank clusters where not all fitting ones are chosen, by the weighted mean of all
	// scores. Each PreferNoSchedule taint that is not tolerated lowers it by 200. A hash of the
	// Bundle orders equal clusters. Default: Balance. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Scores []Score `json:"scores,omitempty"`
	// Rescheduling specifies when running workloads move to clusters with better scores. Not in
	// Karmada.
	// +optional
	Rescheduling *Rescheduling `json:"rescheduling,omitempty"`
	// DecisionGroups name parts of the chosen clusters, for tools that act on clusters in
	// waves. A cluster is in the first group that matches it, or in none. Groups do not change
	// the choice; decisions and `atoll explain` show them. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	DecisionGroups []DecisionGroup `json:"decisionGroups,omitempty"`
	// ReplicaScheduling specifies how the replicas of the Bundle's workloads are assigned to
	// clusters.
	// +optional
	// +kubebuilder:default={}
	ReplicaScheduling ReplicaScheduling `json:"replicaScheduling,omitempty"`
}

// ClusterAffinityTerm is one group of clusters.
type ClusterAffinityTerm struct {
	// AffinityName of the group. Rows keep it: a renamed group is a different group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AffinityName string `json:"affinityName"`

	ClusterAffinity `json:",inline"`

	// ClusterSets: a cluster of the group must be in at least one of them. Empty: any. Not in
	// Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	ClusterSets []string `json:"clusterSets,omitempty"`
	// CELSelector is an expression that is true of the group's clusters, like that of the
	// placement. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CELSelector string `json:"celSelector,omitempty"`
}

// Failback to a group that comes earlier.
type Failback struct {
	// Policy: Never (default) stays in the current group as long as any part of the Bundle
	// stays there. WhenHealthy goes back once an earlier group could take the Bundle, with a
	// connected cluster, for holdTime without interruption. Workloads leave after their
	// replacements are healthy.
	// +optional
	// +kubebuilder:default=Never
	// +kubebuilder:validation:Enum=Never;WhenHealthy
	Policy FailbackPolicy `json:"policy,omitempty"`
	// HoldTime for WhenHealthy, from 0s to 24h. The Bundle's condition PreferredGroup has its
	// start time. Default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="holdTime must be a duration from 0s to 24h, such as 5m"
	HoldTime *metav1.Duration `json:"holdTime,omitempty"`
}

// FailbackPolicy of a placement.
type FailbackPolicy string

// The failback policies.
const (
	FailbackNever       FailbackPolicy = "Never"
	FailbackWhenHealthy FailbackPolicy = "WhenHealthy"
)

// DefaultHoldTime is the default of holdTime.
const DefaultHoldTime = 5 * time.Minute

// HoldDuration returns how long an earlier group must be healthy before it is used again; false: it is
// not used again.
func (f *Failback) HoldDuration() (time.Duration, bool) {
	switch {
	case f == nil || f.Policy != FailbackWhenHealthy:
		return 0, false
	case f.HoldTime == nil:
		return DefaultHoldTime, true
	}
	return f.HoldTime.Duration, true
}

// ServedAPI is a kind, or all of an API version, that a cluster serves.
type ServedAPI struct {
	// APIVersion, such as apps/v1; v1 for the core group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind, such as Deployment. Empty: any kind of that version.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
}

// ClusterAffinity selects clusters: all given fields must match.
type ClusterAffinity struct {
	// LabelSelector over the Clusters' labels.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// FieldSelector over region, zone, provider and listed properties.
	// +optional
	FieldSelector *FieldSelector `json:"fieldSelector,omitempty"`
	// ClusterNames that may be chosen. Empty: any.
	// +optional
	// +kubebuilder:validation:MaxItems=100000
	ClusterNames []string `json:"clusterNames,omitempty"`
	// ExcludeClusters that are never chosen.
	// +optional
	// +kubebuilder:validation:MaxItems=100000
	ExcludeClusters []string `json:"exclude,omitempty"`
}

// FieldSelector over fields of a Cluster.
type FieldSelector struct {
	// MatchExpressions that all hold.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	MatchExpressions []FieldRequirement `json:"matchExpressions"`
}

// FieldRequirement on one field.
type FieldRequirement struct {
	// Key of the field: region, zone or provider, which are set on the hub, or the name of a
	// property that agents report and HubSettings lists. (Karmada has the first three.)
	// Overrides cannot read properties.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Operator: In or NotIn a list of values, where a field that is not set counts as "";
	// Exists or DoesNotExist, without values; Gt or Lt one value, a quantity such as 10 or
	// 64Gi. A field that is not set, or is not a quantity, matches neither Gt nor Lt. (Karmada
	// has In and NotIn.)
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	Operator corev1.NodeSelectorOperator `json:"operator"`
	// Values: at least one for In and NotIn, one for Gt and Lt, none otherwise.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Values []string `json:"values,omitempty"`
}

// PolicyApplied is the condition type of the four kinds of policies. It is false when the policy
// selects nothing, or when what it states cannot be carried out.
const PolicyApplied = "Applied"

// PropagationStatus is the observed state of a policy.
type PropagationStatus struct {
	// ObservedGeneration of the policy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Objects that the policy holds.
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// Conditions: Applied, false with a reason where the policy selects nothing or may not
	// place its objects.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PropagationPolicyList is a list of PropagationPolicies.
//
// +kubebuilder:object:root=true
type PropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PropagationPolicy `json:"items"`
}

// ClusterPropagationPolicyList is a list of ClusterPropagationPolicies.
//
// +kubebuilder:object:root=true
type ClusterPropagationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPropagationPolicy `json:"items"`
}
