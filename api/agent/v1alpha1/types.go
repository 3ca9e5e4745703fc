// Package v1alpha1 is what the administrator of a member says to the agent that runs
// there. Its kinds live in members, beside the agent; no hub serves them, and no agent
// applies them, nor their definition, for a hub.
//
// Contract: the types hold exactly the fields that agents honour. A field that an agent
// does not know makes it refuse everything until it knows it or the field is gone, so that
// a limit is never half kept.
//
// +kubebuilder:object:generate=true
// +groupName=agent.atoll.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of what is said to agents.
var GroupVersion = schema.GroupVersion{Group: "agent.atoll.dev", Version: "v1alpha1"}

// The kind of an AgentPolicy, the resource that serves it, and the name of the one object
// that counts.
const (
	AgentPolicyKind     = "AgentPolicy"
	AgentPolicyResource = "agentpolicies"
	AgentPolicyName     = "agent"
)

// Pattern of names: "*" stands for any characters, also none.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type Pattern string

// AgentPolicy is one object, named "agent", by which the administrator of a member limits
// what its agent does for the hub, within what the member's RBAC allows the agent. Without
// it RBAC alone is the limit. What it forbids is not applied, and reported with this as its
// reason; what was applied before stays as it is. It acts as soon as it is written.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=atoll
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'agent'",message="there is one AgentPolicy, and its name is agent"
// +kubebuilder:printcolumn:name="Cluster-Scoped",type=string,JSONPath=`.spec.clusterScoped`
// +kubebuilder:printcolumn:name="Removal",type=string,JSONPath=`.spec.removal`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AgentPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AgentPolicySpec `json:"spec"`
}

// AgentPolicySpec is the limits. An absent field sets none.
type AgentPolicySpec struct {
	// Namespaces in which the hub may apply, and that it may make. Default: all but that
	// of the agent, which is never the hub's.
	// +optional
	Namespaces *Namespaces `json:"namespaces,omitempty"`
	// Kinds that the hub may apply. Default: all.
	// +optional
	Kinds *Kinds `json:"kinds,omitempty"`
	// ClusterScoped says which objects outside of namespaces the hub may apply: Allow all,
	// NamespacesOnly, or Deny all, also to make namespaces that are not there. Default
	// Allow.
	// +optional
	// +kubebuilder:default=Allow
	ClusterScoped ClusterScoped `json:"clusterScoped,omitempty"`
	// Removal says whether the hub may delete what it applied where it may not apply any
	// more. Default Allow: what was applied by Atoll goes when its users delete it.
	// +optional
	// +kubebuilder:default=Allow
	Removal Removal `json:"removal,omitempty"`
	// ServiceAccounts in whose name the agent writes in namespaces, so that the RBAC of
	// each says what may be applied there. The first that names the namespace counts. Where
	// none does, the agent writes as itself.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ServiceAccounts []ServiceAccount `json:"serviceAccounts,omitempty"`
	// Reach limits who comes into this cluster through the hub, and to do what. Default:
	// whom the agent may impersonate, to do what RBAC allows them.
	// +optional
	Reach *Reach `json:"reach,omitempty"`
}

// ClusterScoped says what may be applied outside of namespaces.
//
// +kubebuilder:validation:Enum=Allow;NamespacesOnly;Deny
type ClusterScoped string

// The values of ClusterScoped.
const (
	ClusterScopedAllow          ClusterScoped = "Allow"
	ClusterScopedNamespacesOnly ClusterScoped = "NamespacesOnly"
	ClusterScopedDeny           ClusterScoped = "Deny"
)

// Removal says whether what may not be applied may still be deleted.
//
// +kubebuilder:validation:Enum=Allow;Deny
type Removal string

// The values of Removal.
const (
	RemovalAllow Removal = "Allow"
	RemovalDeny  Removal = "Deny"
)

// Namespaces by their names or labels: those that are allowed or selected, without those
// that are denied. Where neither names nor a selector allow any, all are.
type Namespaces struct {
	// Allowed names.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Allowed []Pattern `json:"allowed,omitempty"`
	// Selector of namespaces by their labels in this cluster. Namespaces that Atoll made
	// or took over it selects never: their labels are the hub's.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Denied names, also where they are allowed.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Denied []Pattern `json:"denied,omitempty"`
}

// Kinds that are allowed, without those that are denied. Where none is allowed, all are.
type Kinds struct {
	// Allowed kinds.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Allowed []KindRule `json:"allowed,omitempty"`
	// Denied kinds, also where they are allowed.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Denied []KindRule `json:"denied,omitempty"`
}

// KindRule names kinds of an API group.
type KindRule struct {
	// Group such as apps; "" is that of Pods and ConfigMaps. "*" stands for any characters.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// Kinds such as Deployment. Default: all of the group.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	Kinds []Pattern `json:"kinds,omitempty"`
}

// ServiceAccount in whose name the agent writes in some namespaces.
type ServiceAccount struct {
	// Namespaces in which it does.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Namespaces []Pattern `json:"namespaces"`
	// Name of the ServiceAccount, in the namespace that is written in.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Reach says who comes through the hub, and to do what.
type Reach struct {
	// Users that may come, by their names in this cluster. Default: all.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Users []Pattern `json:"users,omitempty"`
	// Groups that they bring along; others are left out. Default: all of theirs.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Groups []Pattern `json:"groups,omitempty"`
	// Requests that they may make: Read what is stored, read Logs of containers, Write, and
	// Connect to containers and services (exec, attach, port-forward, proxy, and whatever
	// upgrades its connection). Default: all; [] is none.
	// +optional
	// +listType=set
	Requests *[]Request `json:"requests,omitempty"`
}

// Request is a sort of requests.
//
// +kubebuilder:validation:Enum=Read;Logs;Write;Connect
type Request string

// The sorts of requests.
const (
	RequestRead    Request = "Read"
	RequestLogs    Request = "Logs"
	RequestWrite   Request = "Write"
	RequestConnect Request = "Connect"
)
