// Package v1alpha2 is the next version of the cluster inventory of Kubernetes' SIG Multicluster, which a hub serves with
// v1alpha1. Objects are stored as v1alpha1, and have the same content in both: v1alpha2 leaves out fields that v1alpha1
// deprecates, and has bounds and rules that v1alpha1 does not have. The API server keeps the fields that v1alpha2 leaves
// out, so that a write by v1alpha2 loses nothing. Names, types, bounds and rules are those of the upstream API.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.x-k8s.io
package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the cluster inventory.
var GroupVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha2"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ClusterProfile is one cluster, for tools that work with many.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Display Name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Manager",type=string,JSONPath=`.spec.clusterManager.name`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version.kubernetes`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="ControlPlaneHealthy")].status`
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
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be a value of a label"
	Name string `json:"name"`
}

// ClusterProfileStatus is the observed state of the cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
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
	// AccessProviders describe how the cluster is reached.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
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
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Cluster as a kubeconfig has it, without credentials.
	Cluster AccessCluster `json:"cluster"`
}

// AccessCluster is the address of an API server, in the fields of a kubeconfig.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AccessCluster struct {
	// Server is the address of the API.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHost() != ''",message="server must be an absolute URL with a host"
	Server string `json:"server"`
	// TLSServerName that the server's certificate is verified for; default: its host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TLSServerName string `json:"tls-server-name,omitempty"`
	// InsecureSkipTLSVerify verifies no certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecure-skip-tls-verify,omitempty"`
	// CertificateAuthorityData is the PEM of the CA that verifies the server.
	// +optional
	CertificateAuthorityData []byte `json:"certificate-authority-data,omitempty"`
	// ProxyURL by which the server is reached.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self == '' || (isURL(self) && url(self).getScheme() in ['http', 'https', 'socks5'] && url(self).getHost() != '')",message="proxy-url must be a URL with the scheme http, https or socks5 and a host"
	ProxyURL string `json:"proxy-url,omitempty"`
	// DisableCompression of answers.
	// +optional
	DisableCompression bool `json:"disable-compression,omitempty"`
	// Extensions are for exec plugins, and tools that support them.
	// +optional
	// +listType=map
	// +listMapKey=name
	Extensions []AccessExtension `json:"extensions,omitempty"`
}

// AccessExtension is the data of one tool.
type AccessExtension struct {
	// Name of the extension.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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
