// Package v1alpha1 holds the kinds that the engine keeps its state in. Only Atoll writes them,
// and only administrators read them. All are cluster-scoped and have no owner references, so
// that the deletion of another object never deletes them.
//
// +kubebuilder:object:generate=true
// +groupName=engine.atoll.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the engine's objects.
var GroupVersion = schema.GroupVersion{Group: "engine.atoll.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Revision{}, &RevisionList{},
		&RevisionPart{}, &RevisionPartList{},
		&TargetSlice{}, &TargetSliceList{},
		&APISet{}, &APISetList{},
		&HubState{}, &HubStateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelBundle, on every object of the engine that belongs to a Bundle, holds the
// Bundle's UID.
const LabelBundle = "engine.atoll.dev/bundle"

// BundleRef names a Bundle.
type BundleRef struct {
	// UID of the Bundle.
	UID string `json:"uid"`
	// Namespace of the Bundle, empty for a ClusterBundle.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the Bundle.
	Name string `json:"name"`
}

// IsNamespaceRef reports whether the reference names a namespace by its UID instead of a Bundle.
// Such a namespace stays in clusters although nothing is placed in it any more.
func (r BundleRef) IsNamespaceRef() bool { return r.Name == "" }

// Revision is immutable content of a Bundle: items, override rules, tombstones.
// Its name is <bundle UID>-<keyed hash of the content>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Bundle",type=string,JSONPath=`.spec.bundle.name`
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.spec.number`
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.spec.items`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Revision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Revision never changes"
	Spec RevisionSpec `json:"spec"`
}

// RevisionSpec is the content, or the names of its parts.
type RevisionSpec struct {
	// Bundle that the content belongs to.
	Bundle BundleRef `json:"bundle"`
	// Number counts the Bundle's revisions from 1.
	Number int64 `json:"number"`
	// Base is the minimum number of a Revision at which rows may stay: between that Revision
	// and this one, only override rules changed that are applied with the next change. 0: all
	// rows must move.
	// +optional
	Base int64 `json:"base,omitempty"`
	// Items in the content.
	Items int32 `json:"items"`
	// Content is the gzipped JSON of the content, without the items in parts.
	Content []byte `json:"content,omitempty"`
	// Parts that hold further items.
	// +optional
	Parts []PartRef `json:"parts,omitempty"`
}

// PartRef names a part of a Revision's content.
type PartRef struct {
	// Name of the RevisionPart, or of the Secret in atoll-system.
	Name string `json:"name"`
	// Secret: the part is stored as a Secret, since it holds Secrets.
	// +optional
	Secret bool `json:"secret,omitempty"`
}

// RevisionPart holds items of one or more Revisions of a Bundle. Its name is
// <bundle UID>-<keyed hash of the data>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type RevisionPart struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Data is gzipped JSON, under 1 MB.
	Data []byte `json:"data"`
}

// TargetSlice holds up to about 200 rows of a Bundle, one per cluster. Its name is
// <bundle UID>-<page number>.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.bundle.namespace`
// +kubebuilder:printcolumn:name="Bundle",type=string,JSONPath=`.spec.bundle.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TargetSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TargetSliceSpec   `json:"spec"`
	Status TargetSliceStatus `json:"status,omitempty"`
}

// TargetSliceSpec is written by the placer and the rollout.
type TargetSliceSpec struct {
	// Bundle that the rows belong to.
	Bundle BundleRef `json:"bundle"`
	// Words that lines of rows refer to by index.
	// +optional
	// +listType=atomic
	Words []string `json:"words,omitempty"`
	// Rows by cluster name: one compact line each, atoll.RowSpec.
	// +optional
	Rows string `json:"rows,omitempty"`
}

// TargetSliceStatus is written by gateways.
type TargetSliceStatus struct {
	// Words that lines of rows refer to by index.
	// +optional
	// +listType=atomic
	Words []string `json:"words,omitempty"`
	// Rows by cluster name: one compact line each, atoll.RowStatus.
	// +optional
	Rows string `json:"rows,omitempty"`
}

// APISet is a set of kinds that members serve; equal sets are stored once, under
// the hash of their content.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type APISet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// APIs as "group/version/Kind", sorted; core as "/v1/Pod".
	// +listType=atomic
	APIs []string `json:"apis"`
}

// HubState is one object, named "hub". It holds the chain of hub starts, by which agents and
// the hub detect that the store was restored from an older state.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type HubState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Chain of hub starts, oldest first, at most 1,000.
	// +listType=atomic
	Chain []ChainLink `json:"chain"`
	// Rewound is set while the hub holds after a restore from an older state.
	// +optional
	Rewound *Rewound `json:"rewound,omitempty"`
	// GenerationFloor: row generations start above it.
	// +optional
	GenerationFloor int64 `json:"generationFloor,omitempty"`
	// Beginning is the ID of a start that is about to be added to the chain. While it is set,
	// no hub issues positions of the last link.
	// +optional
	Beginning string `json:"beginning,omitempty"`
}

// ChainLink is one start of a hub.
type ChainLink struct {
	// ID is random.
	ID string `json:"id"`
	// Revision of the store at that start.
	Revision int64 `json:"revision"`
}

// Rewound holds the reason why the hub waits, and the decision of the administrator.
type Rewound struct {
	// Since is when the hub began to hold.
	Since metav1.Time `json:"since"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	// Accepted is "", "hub" or "members", set by `atoll restore accept`.
	// +optional
	// +kubebuilder:validation:Enum="";hub;members
	Accepted string `json:"accepted,omitempty"`
	// Told counts the removals that members recorded and this hub did not, for the members that
	// connected since.
	// +optional
	Told *RememberedRemovals `json:"told,omitempty"`
}

// RememberedRemovals counts the removals that members reported after a restore.
type RememberedRemovals struct {
	// Clusters that reported their recorded removals, none included.
	Clusters int32 `json:"clusters"`
	// Templates that exist on this hub although a user had deleted them.
	Templates int32 `json:"templates"`
	// Rows that exist on this hub although their Bundle had left the cluster.
	Rows int32 `json:"rows"`
	// Examples of both, as sentences, at most 10.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Examples []string `json:"examples,omitempty"`
}

// RevisionList is a list of Revisions.
//
// +kubebuilder:object:root=true
type RevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Revision `json:"items"`
}

// RevisionPartList is a list of RevisionParts.
//
// +kubebuilder:object:root=true
type RevisionPartList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RevisionPart `json:"items"`
}

// TargetSliceList is a list of TargetSlices.
//
// +kubebuilder:object:root=true
type TargetSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TargetSlice `json:"items"`
}

// APISetList is a list of APISets.
//
// +kubebuilder:object:root=true
type APISetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APISet `json:"items"`
}

// HubStateList is a list of HubStates.
//
// +kubebuilder:object:root=true
type HubStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HubState `json:"items"`
}
