// Package v1alpha1 is the cluster inventory of Kubernetes' SIG Multicluster, its group
// multicluster.x-k8s.io as far as a hub serves it: one ClusterProfile for each cluster, by
// which other tools find the fleet. Names, types and bounds are those of its API of that version
// (KEP-4322, KEP-5339), to the field, so that managers other than Atoll may keep profiles of
// theirs here; a test in tools/inventory holds them against upstream's. The hub writes its own
// with few of them, and others read.
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
	s.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

const (
	// LabelClusterManager is on each ClusterProfile: the name of its manager.
	LabelClusterManager = "x-k8s.io/cluster-manager"
	// ConditionControlPlaneHealthy tells whether the cluster's API answers.
	ConditionControlPlaneHealthy = "ControlPlaneHealthy"
	// ConditionJoined tells whether the cluster is in its manager's fleet. It is Atoll's:
	// upstream has no name for that.
	ConditionJoined = "Joined"
)

// ClusterProfile is one cluster, for tools that work with many.
//
// +kubebuilder:object:root=true
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

// ClusterManager is who manages the cluster.
type ClusterManager struct {
	// Name of the manager; the label x-k8s.io/cluster-manager says the same.
	Name string `json:"name"`
}

// ClusterProfileStatus is what is known of the cluster.
type ClusterProfileStatus struct {
	// Conditions: ControlPlaneHealthy, and what else the manager tells.
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
	// CredentialProviders is how AccessProviders were called; of two of one name that among
	// AccessProviders counts. Atoll writes none.
	// +optional
	// +listType=map
	// +listMapKey=name
	CredentialProviders []AccessProvider `json:"credentialProviders,omitempty"`
	// AccessProviders tell how the cluster is reached.
	// +optional
	// +listType=map
	// +listMapKey=name
	AccessProviders []AccessProvider `json:"accessProviders,omitempty"`
}

// ClusterVersion is about what the cluster runs.
type ClusterVersion struct {
	// Kubernetes' version.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Property of a cluster; KEP-2149's name and value.
type Property struct {
	// Name of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Value of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
	// LastObservedTime is when the manager saw it last. Atoll writes none: it would be a
	// write for being alive.
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

// AccessCluster is where an API server is, in the words of a kubeconfig.
type AccessCluster struct {
	// Server is the address of the API.
	Server string `json:"server"`
	// TLSServerName that the server's certificate is verified for; default: its host.
	// +optional
	TLSServerName string `json:"tls-server-name,omitempty"`
	// InsecureSkipTLSVerify verifies no certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecure-skip-tls-verify,omitempty"`
	// CertificateAuthority is a file at the reader's with the CA.
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
	// Extensions are for exec plugins, and tools that know them.
	// +optional
	Extensions []AccessExtension `json:"extensions,omitempty"`
}

// AccessExtension is what a tool knows by that name.
type AccessExtension struct {
	// Name of the extension.
	Name string `json:"name"`
	// Extension in whatever form.
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
