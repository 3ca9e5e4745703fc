package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy changes objects of its own namespace per cluster, at render.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=opol,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Bundles",type=integer,JSONPath=`.status.bundles`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OverrideSpec   `json:"spec"`
	Status OverrideStatus `json:"status,omitempty"`
}

// ClusterOverridePolicy changes objects of any namespace and cluster-scoped
// ones. It applies before every OverridePolicy, or after them when enforced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=copol,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Enforced",type=boolean,JSONPath=`.spec.enforced`
// +kubebuilder:printcolumn:name="Bundles",type=integer,JSONPath=`.status.bundles`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterOverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterOverrideSpec `json:"spec"`
	Status OverrideStatus      `json:"status,omitempty"`
}

// OverrideStatus is the observed state of an override policy. Its size does not grow with the
// fleet. The status of each Bundle shows the clusters in which a rule fails.
type OverrideStatus struct {
	// ObservedGeneration of the policy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Bundles whose content has rules of the policy.
	// +optional
	Bundles int32 `json:"bundles,omitempty"`
	// Conditions: Applied, false with a reason when no Bundle has an object that the policy
	// selects, or when a rule cannot be carried out in any cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OverrideSpec is shared by both policies.
type OverrideSpec struct {
	// ResourceSelectors select the objects. Empty: all objects that the policy may change.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`
	// OverrideRules, applied in order.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	OverrideRules []RuleWithCluster `json:"overrideRules"`
	// AppliedRules specifies which of the rules that target a cluster apply there: All, or the First alone. A rule
	// without overriders, which First permits, keeps later rules out of its clusters. Default All. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=All;First
	AppliedRules AppliedRules `json:"appliedRules,omitempty"`
	// Priority from 0 to 1000. Low is applied first, so that high overrides low. With equal
	// priorities, a policy that selects the object by name is applied after one that selects it
	// by labels, and both after one that selects all; then by the policies' names. Default 500.
	// Not in Karmada.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
	// Apply specifies when an edit of the policy reaches clusters that hold the objects already:
	// Now, or WithNextChange, together with the next change of the Bundle's content. Clusters
	// that are placed after the edit get it at once. A cluster gets it at once, too, when its
	// own change makes other rules target it. Default Now. Not in Karmada.
	// +optional
	// +kubebuilder:default=Now
	// +kubebuilder:validation:Enum=Now;WithNextChange
	Apply ApplyTime `json:"apply,omitempty"`
}

// AppliedRules specifies which of the rules that target a cluster apply there.
type AppliedRules string

// The rules that apply.
const (
	AppliedRulesAll   AppliedRules = "All"
	AppliedRulesFirst AppliedRules = "First"
)

// ApplyTime is when an override policy's edits are applied.
type ApplyTime string

// The times.
const (
	ApplyNow            ApplyTime = "Now"
	ApplyWithNextChange ApplyTime = "WithNextChange"
)

// ClusterOverrideSpec is an OverrideSpec that may be enforced.
type ClusterOverrideSpec struct {
	OverrideSpec `json:",inline"`
	// Enforced rules come after every namespace's own and so cannot be undone by
	// them. Default false. Not in Karmada.
	// +optional
	Enforced bool `json:"enforced,omitempty"`
}

// RuleWithCluster is a change of objects in some clusters.
type RuleWithCluster struct {
	// TargetCluster selects the clusters in which the rule applies, as a placement's
	// clusterAffinity, clusterSets and celSelector do. Without one: in all.
	// +optional
	TargetCluster *ClusterTarget `json:"targetCluster,omitempty"`
	// OnMissing specifies what happens when an overrider does not apply, because the cluster has no
	// such value or the object has no such field. Stop keeps the object unchanged in that
	// cluster. Skip omits the overrider, and explain reports it. Default Stop. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Enum=Stop;Skip
	OnMissing OnMissing `json:"onMissing,omitempty"`
	// Description is what the rule is for, which explain shows. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description,omitempty"`
	// Atomic: where the rule stops one object of a Bundle in a cluster, it stops all of
	// the Bundle's objects there. Default false. Not in Karmada.
	// +optional
	Atomic bool `json:"atomic,omitempty"`
	// Overriders of the rule: at least one, or none under appliedRules First.
	Overriders Overriders `json:"overriders"`
}

// ClusterTarget selects clusters as a placement does: all given fields must match. It reads
// values that are set on the hub, and no reports of agents.
type ClusterTarget struct {
	ClusterAffinity `json:",inline"`

	// ClusterSets: a cluster must be in at least one of them. Empty: any. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	ClusterSets []string `json:"clusterSets,omitempty"`
	// CELSelector is an expression that is true of a cluster, like that of the placement; it
	// reads no properties. If the evaluation fails, for example because of a missing key, the
	// rule does not apply. The total cost of a policy's expressions is bounded. Empty: any
	// cluster. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	CELSelector string `json:"celSelector,omitempty"`
}

// OnMissing is the action for an overrider that does not apply.
type OnMissing string

// The actions.
const (
	OnMissingStop OnMissing = "Stop"
	OnMissingSkip OnMissing = "Skip"
)

// ValueSource is a value that each cluster provides.
type ValueSource struct {
	// CEL expression over the Cluster, such as cluster.labels['dns']. It reads values that are
	// set on the hub: cluster.name, cluster.labels, cluster.region, cluster.zone,
	// cluster.zones, cluster.provider and cluster.sets, the ClusterSets that it is in, by name. A label that
	// the cluster does not have is no value.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	CEL string `json:"cel"`
}

// Overriders are applied in this order, the first seven of which are Karmada's (image, command,
// args, labels, annotations, field, plaintext): imageOverrider, commandOverrider,
// argsOverrider, labelsOverrider, annotationsOverrider, fieldOverrider, envOverrider,
// resourcesOverrider, replicas, mergePatch, strategicMerge, plaintext; then those of ordered,
// one by one. notHere has no place in the order: the last rule for a cluster that states it
// decides.
//
// Containers are those of every pod template of the object, also in custom kinds: of any map
// outside of metadata and status whose containers all have names. An overrider for a container
// that the object does not have has no effect.
type Overriders struct {
	// ImageOverrider changes parts of container images.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ImageOverrider []ImageOverrider `json:"imageOverrider,omitempty"`
	// CommandOverrider changes the command of containers.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	CommandOverrider []CommandArgsOverrider `json:"commandOverrider,omitempty"`
	// ArgsOverrider changes the args of containers.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ArgsOverrider []CommandArgsOverrider `json:"argsOverrider,omitempty"`
	// LabelsOverrider changes the object's own labels.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LabelsOverrider []LabelAnnotationOverrider `json:"labelsOverrider,omitempty"`
	// AnnotationsOverrider changes the object's own annotations.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	AnnotationsOverrider []LabelAnnotationOverrider `json:"annotationsOverrider,omitempty"`
	// FieldOverrider changes a JSON or YAML document that a text field holds.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	FieldOverrider []FieldOverrider `json:"fieldOverrider,omitempty"`
	// EnvOverrider changes environment variables of containers. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	EnvOverrider []EnvOverrider `json:"envOverrider,omitempty"`
	// ResourcesOverrider changes requests and limits of containers. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ResourcesOverrider []ResourcesOverrider `json:"resourcesOverrider,omitempty"`
	// Replicas sets spec.replicas of Deployments, StatefulSets, ReplicaSets and
	// ReplicationControllers, and of custom kinds that state it as a number
	// (spec.parallelism of Jobs). Refused on an object whose replicas are Divided. Not
	// in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// MergePatch is a JSON merge patch (RFC 7386) of the object: null deletes a field, a list
	// is replaced as a whole. Not in Karmada.
	// +optional
	MergePatch *apiextensionsv1.JSON `json:"mergePatch,omitempty"`
	// StrategicMerge is a strategic merge patch of the object, like that of kubectl patch:
	// lists of built-in kinds are merged by their keys. Refused for custom kinds, which do not
	// define how their lists are merged: use mergePatch. Not in Karmada.
	// +optional
	StrategicMerge *apiextensionsv1.JSON `json:"strategicMerge,omitempty"`
	// Plaintext are JSON Patch operations.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Plaintext []PlaintextOverrider `json:"plaintext,omitempty"`
	// NotHere: the object is not sent to the cluster, and is removed from it (kept there under
	// removal mode Orphan). Such a removal counts against the removal budget, and is held over
	// it; other changes continue. false cancels an earlier rule. Refused on an object whose
	// replicas are Divided, unless the placement has replicaOverrides: Allow. Then it removes
	// the cluster's assigned replicas, and the object is removed once these are 0. Not in
	// Karmada.
	// +optional
	NotHere *bool `json:"notHere,omitempty"`
	// Ordered are applied after all other overriders, in their own order. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Ordered []OrderedOverrider `json:"ordered,omitempty"`
}

// OrderedOverrider is exactly one overrider, with the meaning that it has in Overriders.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type OrderedOverrider struct {
	// ImageOverrider changes parts of container images.
	// +optional
	ImageOverrider *ImageOverrider `json:"imageOverrider,omitempty"`
	// CommandOverrider changes the command of containers.
	// +optional
	CommandOverrider *CommandArgsOverrider `json:"commandOverrider,omitempty"`
	// ArgsOverrider changes the args of containers.
	// +optional
	ArgsOverrider *CommandArgsOverrider `json:"argsOverrider,omitempty"`
	// LabelsOverrider changes the object's own labels.
	// +optional
	LabelsOverrider *LabelAnnotationOverrider `json:"labelsOverrider,omitempty"`
	// AnnotationsOverrider changes the object's own annotations.
	// +optional
	AnnotationsOverrider *LabelAnnotationOverrider `json:"annotationsOverrider,omitempty"`
	// FieldOverrider changes a JSON or YAML document that a text field holds.
	// +optional
	FieldOverrider *FieldOverrider `json:"fieldOverrider,omitempty"`
	// EnvOverrider changes environment variables of containers.
	// +optional
	EnvOverrider *EnvOverrider `json:"envOverrider,omitempty"`
	// ResourcesOverrider changes requests and limits of containers.
	// +optional
	ResourcesOverrider *ResourcesOverrider `json:"resourcesOverrider,omitempty"`
	// Replicas sets how many replicas the object has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// MergePatch is a JSON merge patch of the object.
	// +optional
	MergePatch *apiextensionsv1.JSON `json:"mergePatch,omitempty"`
	// StrategicMerge is a strategic merge patch of the object.
	// +optional
	StrategicMerge *apiextensionsv1.JSON `json:"strategicMerge,omitempty"`
	// Plaintext is a JSON Patch operation.
	// +optional
	Plaintext *PlaintextOverrider `json:"plaintext,omitempty"`
}

// ImageOverrider changes one component of images.
type ImageOverrider struct {
	// Predicate narrows the change to one field. Without one and without containerName: every
	// container and init container of the pod template.
	// +optional
	Predicate *ImagePredicate `json:"predicate,omitempty"`
	// ContainerName narrows the change to the container or init container of that name. Not
	// together with predicate. Not in Karmada.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// Component of the image that changes. Digest is not in Karmada.
	// +kubebuilder:validation:Enum=Registry;Repository;Tag;Digest
	Component ImageComponent `json:"component"`
	// Operator: add appends the value, remove empties the component, replace sets it. For a
	// Digest, add sets it, too; the tag stays.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value for add and replace.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Value string `json:"value,omitempty"`
	// ValueFrom gives the value per cluster, in place of value.
	// +optional
	ValueFrom *ValueSource `json:"valueFrom,omitempty"`
}

// ImagePredicate names the field that holds the image.
type ImagePredicate struct {
	// Path as a JSON Pointer, such as /spec/template/spec/containers/0/image.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
}

// ImageComponent is a part of an image's name.
type ImageComponent string

// The components of an image's name.
const (
	ImageRegistry   ImageComponent = "Registry"
	ImageRepository ImageComponent = "Repository"
	ImageTag        ImageComponent = "Tag"
	ImageDigest     ImageComponent = "Digest"
)

// OverriderOperator is what an overrider does.
type OverriderOperator string

// The operators.
const (
	OverrideAdd     OverriderOperator = "add"
	OverrideRemove  OverriderOperator = "remove"
	OverrideReplace OverriderOperator = "replace"
	OverrideMove    OverriderOperator = "move"
	OverrideCopy    OverriderOperator = "copy"
	OverrideTest    OverriderOperator = "test"
)

// CommandArgsOverrider changes the command or the args of a container.
type CommandArgsOverrider struct {
	// ContainerName of the container or init container.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName"`
	// Operator: add appends the values, remove deletes every element that equals one of them.
	// +kubebuilder:validation:Enum=add;remove
	Operator OverriderOperator `json:"operator"`
	// Value lists the texts that are added or removed.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=65536
	Value []string `json:"value,omitempty"`
	// ValueFrom gives, per cluster, a text or a list of texts that follow those of value.
	// +optional
	ValueFrom *ValueSource `json:"valueFrom,omitempty"`
}

// LabelAnnotationOverrider changes labels or annotations.
type LabelAnnotationOverrider struct {
	// Operator: add sets keys, existing ones included; replace sets only existing keys; remove
	// deletes keys. All as in Karmada.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value holds the keys, and the values for add and replace.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=256
	Value map[string]string `json:"value,omitempty"`
	// ValueFrom gives the values of further keys per cluster.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	ValueFrom map[string]ValueSource `json:"valueFrom,omitempty"`
}

// FieldOverrider changes a document that a text field holds: parts that it does not name stay.
// Exactly one of json, yaml and mergePatch.
//
// +kubebuilder:validation:MinProperties=2
// +kubebuilder:validation:MaxProperties=2
type FieldOverrider struct {
	// FieldPath of the text, as a JSON Pointer, such as /data/config.yaml.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	FieldPath string `json:"fieldPath"`
	// JSON operations on a JSON document. Its keys come out sorted, its indentation
	// stays.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	JSON []DocumentPatch `json:"json,omitempty"`
	// YAML operations on a YAML document. Comments and the order of keys stay.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	YAML []DocumentPatch `json:"yaml,omitempty"`
	// MergePatch is a JSON merge patch (RFC 7386) of the document, which is a map in JSON or in
	// YAML. A text that is JSON is written as with json, any other as with yaml. Not in Karmada.
	// +optional
	MergePatch *apiextensionsv1.JSON `json:"mergePatch,omitempty"`
}

// DocumentPatch is one operation on a document.
type DocumentPatch struct {
	// SubPath in the document, as a JSON Pointer.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	SubPath string `json:"subPath"`
	// Operator, as of a JSON Patch.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value for add and replace; null is a value.
	// +optional
	// +nullable
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
	// ValueFrom gives the value per cluster, in place of value.
	// +optional
	ValueFrom *ValueSource `json:"valueFrom,omitempty"`
}

// EnvOverrider changes environment variables.
type EnvOverrider struct {
	// ContainerName of the container or init container. Without one: all of both.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// Operator: add sets variables, existing ones included; replace sets only existing
	// variables; remove deletes variables.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value lists the variables.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Value []EnvValue `json:"value"`
}

// EnvValue is an environment variable.
type EnvValue struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// Value for add and replace.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Value string `json:"value,omitempty"`
	// ValueFrom gives the value per cluster, in place of value.
	// +optional
	ValueFrom *ValueSource `json:"valueFrom,omitempty"`
}

// ResourcesOverrider changes requests and limits.
//
// +kubebuilder:validation:MinProperties=2
type ResourcesOverrider struct {
	// ContainerName of the container or init container. Without one: every container,
	// and no init container.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// Operator: add sets quantities, existing ones included; replace sets only existing
	// quantities; remove deletes them, whatever quantity is given.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Requests by resource.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Requests map[string]resource.Quantity `json:"requests,omitempty"`
	// Limits by resource.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
}

// PlaintextOverrider is one JSON Patch operation.
type PlaintextOverrider struct {
	// Path as a JSON Pointer.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
	// Operator of the patch: add, remove, replace; move takes the value away from the path from
	// and sets it at path; copy sets it there without taking it away; test changes nothing, and
	// does not apply when path has another value than the given one. Move, copy and test are
	// not in Karmada.
	// +kubebuilder:validation:Enum=add;remove;replace;move;copy;test
	Operator OverriderOperator `json:"operator"`
	// From is the path, a JSON Pointer, from which move and copy take the value. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	From string `json:"from,omitempty"`
	// Value for add, replace and test; null is a value.
	// +optional
	// +nullable
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
	// ValueFrom gives the value per cluster, in place of value.
	// +optional
	ValueFrom *ValueSource `json:"valueFrom,omitempty"`
}

// OverridePolicyList is a list of OverridePolicies.
//
// +kubebuilder:object:root=true
type OverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OverridePolicy `json:"items"`
}

// ClusterOverridePolicyList is a list of ClusterOverridePolicies.
//
// +kubebuilder:object:root=true
type ClusterOverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterOverridePolicy `json:"items"`
}
