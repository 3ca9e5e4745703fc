package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HubSettingsName is the name of the one HubSettings.
const HubSettingsName = "hub"

// HubSettings is one object, named "hub", with the settings of the whole hub. Without it every
// setting has its default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=hubsettings,singular=hubsettings,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'hub'",message="there is one HubSettings, and its name is hub"
type HubSettings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HubSettingsSpec `json:"spec,omitempty"`
	// Status is written by the hub. The hub creates the object when it first has a condition to
	// report.
	// +optional
	Status HubSettingsStatus `json:"status,omitempty"`
}

// Condition types of a hub, in the status of its HubSettings. Without a HubSettings, the hub makes
// one when a condition turns true.
const (
	// HubCertificatesExpiring is true while an administrator must replace a CA or certificate
	// of the hub, or while a renewal is overdue.
	HubCertificatesExpiring = "CertificatesExpiring"
	// HubRotatingCAs is true while a rotation of the hub's CAs is under way; its message has
	// the progress of the agents. Reason AgentsFollow, or ReadyToFinish.
	HubRotatingCAs = "RotatingCAs"
	// HubFailoverPaused is true while so many clusters are lost that the hub taints no further one. It is
	// there while spec.failover is stated.
	HubFailoverPaused = "FailoverPaused"
)

// ClusterFailover is when the hub taints a lost cluster. The hub adds a NoExecute taint to the
// Cluster: atoll.dev/unreachable while the cluster has no connection, atoll.dev/not-ready while it
// reports that it is not ready. Placements tolerate both as any other taint. A Bundle leaves the
// cluster only when another cluster takes its place.
type ClusterFailover struct {
	// After is how long a cluster is lost before the hub taints it, from 30s to 8760h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s') && duration(self) <= duration('8760h')",message="after must be a duration from 30s to 8760h, such as 5m"
	After metav1.Duration `json:"after"`
	// RecoverAfter is how long a cluster is ready without a break before the hub removes the taint,
	// from 0s to 8760h. Default 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('8760h')",message="recoverAfter must be a duration from 0s to 8760h, such as 1m"
	RecoverAfter *metav1.Duration `json:"recoverAfter,omitempty"`
	// MaxLostPercent is the share of lost clusters above which the hub gives no further cluster up,
	// from 1 to 100: of all clusters, and of each zone that has more than two lost clusters and
	// another one. Default 55, as for nodes in Kubernetes.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxLostPercent int32 `json:"maxLostPercent,omitempty"`
}

// Defaults of ClusterFailover.
const (
	DefaultRecoverAfter   = time.Minute
	DefaultMaxLostPercent = 55
)

// HubSettingsStatus is the observed state of the hub.
type HubSettingsStatus struct {
	// Conditions: CertificatesExpiring, RotatingCAs and FailoverPaused.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HubSettingsSpec is what the hub's administrator states.
type HubSettingsSpec struct {
	// PlacementProperties names the properties, of all that agents report, that placements may
	// read in fieldSelector and celSelector. The administrator of a member can attract
	// applications by a property that is listed here. Default none.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	PlacementProperties []string `json:"placementProperties,omitempty"`
	// ClusterProfiles specifies whether the accepted clusters are published as ClusterProfiles
	// (multicluster.x-k8s.io) in the namespace atoll-inventory, for other tools: one object of
	// about 2 kB for each. The choices of Placements are then published as PlacementDecisions of
	// the same group, too. None deletes both again. Default Publish.
	// +optional
	ClusterProfiles ClusterProfilesPolicy `json:"clusterProfiles,omitempty"`
	// DefaultPlacement places the objects that no policy and no annotation places. The
	// annotation atoll.dev/clusters of a namespace replaces it there, and an empty one turns it
	// off. A namespace reaches the clusters of the sets that are bound to it, as with a policy of
	// its own. Default: such objects stay on the hub.
	// +optional
	DefaultPlacement *DefaultPlacement `json:"defaultPlacement,omitempty"`
	// ChildPlacement places the objects that a controller on the hub makes of a placed object, its
	// parent, and that no policy and no annotation places. An owner reference with controller
	// true names the parent. Parent sends them where the parent goes, in its Bundle. None leaves
	// them on the hub. A new hub has Parent. Without the field: None.
	// +optional
	ChildPlacement ChildPlacement `json:"childPlacement,omitempty"`
	// Failover taints clusters that are lost, so that Bundles move to other clusters. Default: the
	// hub taints no cluster.
	// +optional
	Failover *ClusterFailover `json:"failover,omitempty"`
	// Freeze stops all changes of what runs, in all clusters, until a person removes it or its end. Only users with the verb freeze on
	// hubsettings write it. Failover of lost clusters and other moves go on. A Bundle with spec.freezeExemption changes all the same.
	// +optional
	Freeze *ChangeFreeze `json:"freeze,omitempty"`
	// EmptyNamespaces specifies whether a placed namespace appears in its clusters when it has no objects.
	// Create makes it there. None makes it with its first object. A new hub has Create. Without the
	// field: None.
	// +optional
	EmptyNamespaces EmptyNamespaces `json:"emptyNamespaces,omitempty"`
	// UndoWindow is how long the hub keeps what users change and delete of placed objects, from 0s to
	// 720h, so that `atoll undo` can take it back. 0s keeps nothing, and deletes what is kept. Default 24h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('720h')",message="undoWindow must be a duration from 0s to 720h, such as 24h"
	UndoWindow *metav1.Duration `json:"undoWindow,omitempty"`
}

// ChangeFreeze stops all changes of what runs.
type ChangeFreeze struct {
	// Reason for people.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
	// By is the user that froze, or that last edited the freeze. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// Since is when the freeze began. The hub sets it.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Until is when the freeze ends by itself. Absent: it does not.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// IsActive reports whether the freeze has not ended.
func (f *ChangeFreeze) IsActive(now time.Time) bool {
	return f != nil && (f.Until == nil || f.Until.After(now))
}

// DefaultUndoWindow is how long changes can be undone by default.
const DefaultUndoWindow = 24 * time.Hour

// EmptyNamespaces specifies what becomes of placed namespaces without objects.
// +kubebuilder:validation:Enum=Create;None
type EmptyNamespaces string

// The treatments of empty namespaces.
const (
	EmptyNamespacesCreate EmptyNamespaces = "Create"
	EmptyNamespacesNone   EmptyNamespaces = "None"
)

// ChildPlacement specifies where objects go that controllers on the hub make of placed objects.
// +kubebuilder:validation:Enum=Parent;None
type ChildPlacement string

// The child placements.
const (
	ChildPlacementParent ChildPlacement = "Parent"
	ChildPlacementNone   ChildPlacement = "None"
)

// DefaultPlacement names the clusters of objects that nothing else places.
//
// +kubebuilder:validation:XValidation:rule="(self.type in ['ClusterSet', 'ClusterPlacement']) == has(self.name)",message="name is for the types ClusterSet and ClusterPlacement, and needed there"
type DefaultPlacement struct {
	// Type: None leaves the objects on the hub. All sends them to every cluster. ClusterSet sends
	// them to the clusters of one set. ClusterPlacement sends them where that object places.
	// +kubebuilder:validation:Enum=None;All;ClusterSet;ClusterPlacement
	Type DefaultPlacementType `json:"type"`
	// Name of the ClusterSet or of the ClusterPlacement.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// DefaultPlacementType specifies how a default placement names its clusters.
type DefaultPlacementType string

// The types of default placements.
const (
	DefaultPlacementNone             DefaultPlacementType = "None"
	DefaultPlacementAll              DefaultPlacementType = "All"
	DefaultPlacementClusterSet       DefaultPlacementType = "ClusterSet"
	DefaultPlacementClusterPlacement DefaultPlacementType = "ClusterPlacement"
)

// ClusterProfilesPolicy specifies whether clusters are published.
// +kubebuilder:validation:Enum=Publish;None
type ClusterProfilesPolicy string

// The policies for ClusterProfiles.
const (
	ProfilesPublish ClusterProfilesPolicy = "Publish"
	ProfilesNone    ClusterProfilesPolicy = "None"
)

// HubSettingsList is a list of HubSettings.
//
// +kubebuilder:object:root=true
type HubSettingsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HubSettings `json:"items"`
}
