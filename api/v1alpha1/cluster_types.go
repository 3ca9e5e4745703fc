package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is one member: a Kubernetes cluster in which an agent runs. Its
// metadata.uid is its identity, which its agent's certificate carries; the name
// is a label for people. Labels and taints steer placement and are the hub's to
// set, never the agent's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cl,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=boolean,JSONPath=`.spec.accepted`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes.summary`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec,omitempty"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is the hub's side of a member.
type ClusterSpec struct {
	// Accepted is the hub's half of the handshake. Setting it to true needs the
	// verb `accept` on clusters; false cuts the agent off at once. Default false.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// Region in which the member runs, such as "eu-west". Field selectors match it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`

	// Zone within the region. Field selectors match it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// Provider of the member's machines. Field selectors match it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// Taints repel placements that do not tolerate them. NoSchedule keeps new
	// Bundles away; NoExecute also moves those that are there, after their
	// toleration, replacements first.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	Taints []Taint `json:"taints,omitempty"`
}

// Taint of a Cluster; the meaning of core/v1's on nodes.
type Taint struct {
	// Key of the taint, a qualified name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Key string `json:"key"`
	// Value of the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// Effect on placements that do not tolerate the taint.
	// +kubebuilder:validation:Enum=NoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
	// TimeAdded is when a NoExecute taint was added, from which tolerationSeconds
	// count. The hub sets it when it is missing.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// Condition types of a Cluster.
const (
	// ClusterAccepted mirrors spec.accepted, with who is to act.
	ClusterAccepted = "Accepted"
	// ClusterJoined is true once the agent has its certificate and spoke with it.
	ClusterJoined = "Joined"
	// ClusterReady is true while the agent's stream lives and the member's API
	// answers it, Unknown from 40 s after the stream was lost.
	ClusterReady = "Ready"
)

// ClusterStatus is what the agent reported, written on change only.
type ClusterStatus struct {
	// KubernetesVersion of the member, such as "v1.36.3".
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// AgentVersion that the agent says it is.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// APIsHash names the APISet that lists the kinds that the member serves.
	// +optional
	APIsHash string `json:"apisHash,omitempty"`
	// Nodes of the member.
	// +optional
	Nodes NodeSummary `json:"nodes,omitempty"`
	// Resources of the member, summed over its ready nodes.
	// +optional
	Resources ResourceSummary `json:"resources,omitempty"`
	// Conditions: Accepted, Joined, Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeSummary counts nodes.
type NodeSummary struct {
	// Total number of nodes.
	Total int32 `json:"total"`
	// Ready nodes among them.
	Ready int32 `json:"ready"`
	// Summary is "ready/total", for the table that kubectl prints.
	// +optional
	Summary string `json:"summary,omitempty"`
}

// ResourceSummary sums what nodes offer and pods request.
type ResourceSummary struct {
	// Allocatable over ready nodes: cpu, memory, pods.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Requested by pods that are bound and not finished, rounded up to two
	// significant digits, so that ordinary churn writes nothing.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}
