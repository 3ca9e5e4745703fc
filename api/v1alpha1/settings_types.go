package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HubSettingsName is the name of the one HubSettings.
const HubSettingsName = "hub"

// HubSettings is one object, named "hub", with what the hub's admin decides for all.
// Without it everything has its default.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=hubsettings,singular=hubsettings,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'hub'",message="there is one HubSettings, and its name is hub"
type HubSettings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec HubSettingsSpec `json:"spec,omitempty"`
	// Status is the hub's. The hub makes the object when it first has something to tell.
	// +optional
	Status HubSettingsStatus `json:"status,omitempty"`
}

// Conditions of a hub, in the status of its HubSettings. They are there while true.
const (
	// HubCertificatesExpiring is true while one of the hub's CAs or certificates is to be
	// replaced by somebody, or was not renewed though it was time.
	HubCertificatesExpiring = "CertificatesExpiring"
	// HubRotatingCAs is true while a rotation of the hub's CAs is under way; its message
	// tells how far agents are. Reason AgentsFollow, or ReadyToFinish.
	HubRotatingCAs = "RotatingCAs"
)

// HubSettingsStatus is what the hub's admin should know of the hub.
type HubSettingsStatus struct {
	// Conditions: CertificatesExpiring and RotatingCAs, which are there while true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HubSettingsSpec is the admin's.
type HubSettingsSpec struct {
	// PlacementProperties are the names of those properties, of all that agents report,
	// which placements may read, in fieldSelector and celSelector. Who runs a member can
	// draw applications to it by a property that is listed here. Default none.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	PlacementProperties []string `json:"placementProperties,omitempty"`
	// ClusterProfiles says whether the accepted clusters are published as ClusterProfiles
	// (multicluster.x-k8s.io) in the namespace atoll-inventory, where other tools find them:
	// one object of about 2 kB for each. None takes them away again. Default Publish.
	// +optional
	ClusterProfiles ClusterProfilesPolicy `json:"clusterProfiles,omitempty"`
}

// ClusterProfilesPolicy says whether clusters are published.
// +kubebuilder:validation:Enum=Publish;None
type ClusterProfilesPolicy string

// What becomes of ClusterProfiles.
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
