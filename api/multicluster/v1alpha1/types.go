// Package v1alpha1 is the cluster inventory of Kubernetes' SIG Multicluster: the kinds of its
// group multicluster.x-k8s.io that a hub serves. There is one ClusterProfile for each cluster,
// by which other tools find the fleet, and PlacementDecisions list the clusters that a scheduler
// chose. Names, types and bounds are those of the upstream API (KEP-4322, KEP-5339, KEP-5313), so that other managers can store their profiles here. A test in
// tools/inventory compares them with upstream's. The hub writes its own profiles with a few of
// the fields.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the cluster inventory.
var GroupVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{}, &PlacementDecision{}, &PlacementDecisionList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// InventoryNamespace holds the objects that the hub publishes for the whole fleet. Their
	// readers need no access to the hub's own namespace.
	InventoryNamespace = "atoll-inventory"
	// LabelDecisionKey is the same on all PlacementDecisions of one decision. The hub writes the
	// name of the Placement.
	LabelDecisionKey = "multicluster.x-k8s.io/decision-key"
	// LabelClusterManager is on each ClusterProfile: the name of its manager.
	LabelClusterManager = "x-k8s.io/cluster-manager"
	// ConditionControlPlaneHealthy reports whether the cluster's API server answers.
	ConditionControlPlaneHealthy = "ControlPlaneHealthy"
	// ConditionJoined reports whether the cluster is in its manager's fleet. It is Atoll's own:
	// upstream has no such condition.
	ConditionJoined = "Joined"
)

// ClusterProfile is one cluster, for tools that work with many.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Manager",type=string,JSONPath=`.spec.clusterManager.name`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="ControlPlaneHealthy")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version.kubernetes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterProfileSpec `json:"spec"`
	// +optional
	Status ClusterProfileStatus `json:"status,omitempty"`
}

// ClusterProfileSpec names the cluster.
type ClusterProfileSpec struct {
	// DisplayName for people.
	// +optional
	DisplayName string `json:"displayName,omitempty"`
	// ClusterManager that publishes the profile.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="clusterManager is immutable"
	ClusterManager ClusterManager `json:"clusterManager"`
}

// ClusterManager is the manager of the cluster.
type ClusterManager struct {
	// Name of the manager; the label x-k8s.io/cluster-manager has the same value.
	Name string `json:"name"`
}

// ClusterProfileStatus is the observed state of the cluster.
type ClusterProfileStatus struct {
	// Conditions: ControlPlaneHealthy, and further ones of the manager.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Version of the cluster.
	// +optional
	Version ClusterVersion `json:"version,omitempty"`
	// Properties of the cluster, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Properties []Property `json:"properties,omitempty"`
	// CredentialProviders is the former name of AccessProviders; an entry of AccessProviders
	// replaces one of the same name. Atoll writes none.
	// +optional
	// +listType=map
	// +listMapKey=name
	CredentialProviders []AccessProvider `json:"credentialProviders,omitempty"`
	// AccessProviders describe how the cluster is reached.
	// +optional
	// +listType=map
	// +listMapKey=name
	AccessProviders []AccessProvider `json:"accessProviders,omitempty"`
}

// ClusterVersion holds the versions of the cluster's software.
type ClusterVersion struct {
	// Kubernetes' version.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Property of a cluster, with the name and value of KEP-2149.
type Property struct {
	// Name of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Value of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
	// LastObservedTime is when the manager observed it last. Atoll writes none, because it
	// would need a write without a change.
	// +optional
	LastObservedTime *metav1.Time `json:"lastObservedTime,omitempty"`
}

// AccessProvider is one way to the cluster.
type AccessProvider struct {
	// Name of the way.
	Name string `json:"name"`
	// Cluster as a kubeconfig has it, without credentials.
	// +optional
	Cluster AccessCluster `json:"cluster,omitempty"`
}

// AccessCluster is the address of an API server, in the fields of a kubeconfig.
type AccessCluster struct {
	// Server is the address of the API.
	Server string `json:"server"`
	// TLSServerName that the server's certificate is verified for; default: its host.
	// +optional
	TLSServerName string `json:"tls-server-name,omitempty"`
	// InsecureSkipTLSVerify verifies no certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecure-skip-tls-verify,omitempty"`
	// CertificateAuthority is a file with the CA on the reader's machine.
	// +optional
	CertificateAuthority string `json:"certificate-authority,omitempty"`
	// CertificateAuthorityData is the PEM of the CA that verifies the server.
	// +optional
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	// ProxyURL by which the server is reached.
	// +optional
	ProxyURL string `json:"proxy-url,omitempty"`
	// DisableCompression of answers.
	// +optional
	DisableCompression bool `json:"disable-compression,omitempty"`
	// Extensions are for exec plugins, and tools that support them.
	// +optional
	Extensions []AccessExtension `json:"extensions,omitempty"`
}

// AccessExtension is the data of one tool.
type AccessExtension struct {
	// Name of the extension.
	Name string `json:"name"`
	// Extension in any form.
	// +kubebuilder:pruning:PreserveUnknownFields
	Extension runtime.RawExtension `json:"extension"`
}

// ClusterProfileList is a list of ClusterProfiles.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterProfile `json:"items"`
}

// PlacementDecision lists up to 100 of the clusters that a scheduler chose.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=`.schedulerName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementDecision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Decisions are the chosen clusters.
	// +kubebuilder:validation:MinItems=0
	// +kubebuilder:validation:MaxItems=100
	Decisions []ClusterDecision `json:"decisions"`
	// SchedulerName of the scheduler that chose. The hub writes "atoll".
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
}

// ClusterDecision is one chosen cluster.
type ClusterDecision struct {
	// ClusterProfileRef refers to the ClusterProfile of the cluster.
	ClusterProfileRef ClusterProfileReference `json:"clusterProfileRef"`
	// Reason of the choice. The hub writes why a cluster stays chosen that no longer fits.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterProfileReference names a ClusterProfile.
type ClusterProfileReference struct {
	// Name of the ClusterProfile.
	Name string `json:"name"`
	// Namespace of the ClusterProfile. Default: that of the PlacementDecision.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// PlacementDecisionList is a list of PlacementDecisions.
//
// +kubebuilder:object:root=true
type PlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementDecision `json:"items"`
}
