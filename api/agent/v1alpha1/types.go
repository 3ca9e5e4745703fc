// Package v1alpha1 holds the kinds by which the administrator of a member limits the agent. Its
// kinds exist in members only. No hub serves them, and no agent applies them, nor their
// definition, for a hub.
//
// Contract: the types hold exactly the fields that agents honour. An agent that finds a field
// it does not support refuses all changes until the field is gone or the agent is newer. A
// limit is therefore never enforced in part.
//
// +kubebuilder:object:generate=true
// +groupName=agent.atoll.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the kinds that limit agents.
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

// AgentPolicy is one object, named "agent", by which the administrator of a member limits what
// its agent does for the hub, within what the member's RBAC allows the agent. Without it RBAC
// alone is the limit. A forbidden object is not applied, and reported with the reason
// DeniedByPolicy; objects that were applied before stay unchanged. It takes effect as soon as
// it is written.
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
	// Namespaces in which the hub may apply objects, and that it may create. Default: all but
	// the namespace of the agent, which the hub may never change.
	// +optional
	Namespaces *Namespaces `json:"namespaces,omitempty"`
	// Kinds that the hub may apply. Default: all.
	// +optional
	Kinds *Kinds `json:"kinds,omitempty"`
	// ClusterScoped specifies which objects outside of namespaces the hub may apply: Allow all,
	// NamespacesOnly, or Deny all, also to make namespaces that are not there. Default
	// Allow.
	// +optional
	// +kubebuilder:default=Allow
	ClusterScoped ClusterScoped `json:"clusterScoped,omitempty"`
	// Removal specifies whether the hub may delete objects that it applied and may no longer apply.
	// Default Allow: an object that Atoll applied is deleted when its user deletes it.
	// +optional
	// +kubebuilder:default=Allow
	Removal Removal `json:"removal,omitempty"`
	// ServiceAccounts that the agent impersonates when it writes in namespaces, so that the
	// RBAC of each limits the objects there. The first that names the namespace counts. If none
	// does, the agent writes as itself.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ServiceAccounts []ServiceAccount `json:"serviceAccounts,omitempty"`
	// NamedServiceAccount limits the ServiceAccounts that the hub names for objects. The agent writes such an object
	// only if the ServiceAccount has the right to it as well. Optional permits objects with any ServiceAccount, and
	// without one. Required denies objects without one. OwnNamespace also denies each ServiceAccount outside of the
	// object's namespace, so that objects outside of namespaces are denied, except Namespaces. Default Optional.
	// +optional
	// +kubebuilder:default=Optional
	NamedServiceAccount NamedServiceAccount `json:"namedServiceAccount,omitempty"`
	// Changes specifies when the agent carries out what the hub orders. Default: at any time.
	// +optional
	Changes *Changes `json:"changes,omitempty"`
	// Reach limits the users that reach this cluster through the hub, and their requests.
	// Default: all users that the agent may impersonate, with all requests that RBAC allows
	// them.
	// +optional
	Reach *Reach `json:"reach,omitempty"`
	// NodeLabels are the keys of node labels whose values the agent reports, in the order of their importance, as
	// properties of the cluster. For each value, the properties have the number of nodes, and their allocatable CPU and
	// memory. At most 12 values of all keys together are reported. Default: none.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	NodeLabels []string `json:"nodeLabels,omitempty"`
}

// MaxNodeLabels is the most keys of node labels that a policy states.
const MaxNodeLabels = 8

// ClusterScoped specifies which objects outside of namespaces may be applied.
//
// +kubebuilder:validation:Enum=Allow;NamespacesOnly;Deny
type ClusterScoped string

// The values of ClusterScoped.
const (
	ClusterScopedAllow          ClusterScoped = "Allow"
	ClusterScopedNamespacesOnly ClusterScoped = "NamespacesOnly"
	ClusterScopedDeny           ClusterScoped = "Deny"
)

// Removal specifies whether objects that may not be applied may still be deleted.
//
// +kubebuilder:validation:Enum=Allow;Deny
type Removal string

// The values of Removal.
const (
	RemovalAllow Removal = "Allow"
	RemovalDeny  Removal = "Deny"
)

// NamedServiceAccount specifies which ServiceAccounts the hub names for objects.
//
// +kubebuilder:validation:Enum=Optional;Required;OwnNamespace
type NamedServiceAccount string

// The values of NamedServiceAccount.
const (
	NamedServiceAccountOptional     NamedServiceAccount = "Optional"
	NamedServiceAccountRequired     NamedServiceAccount = "Required"
	NamedServiceAccountOwnNamespace NamedServiceAccount = "OwnNamespace"
)

// Namespaces selects namespaces by names or labels: the allowed or selected ones, without the
// denied ones. Without names and without a selector, all are allowed.
type Namespaces struct {
	// Allowed names.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Allowed []Pattern `json:"allowed,omitempty"`
	// Selector of namespaces by their labels in this cluster. It never selects namespaces that
	// Atoll created or adopted, because the hub sets their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Denied names, also where they are allowed.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Denied []Pattern `json:"denied,omitempty"`
}

// Kinds selects the allowed kinds, without the denied ones. Without a kind, all are allowed.
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

// ServiceAccount that the agent impersonates when it writes in some namespaces.
type ServiceAccount struct {
	// Namespaces of the impersonation.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Namespaces []Pattern `json:"namespaces"`
	// Name of the ServiceAccount, in the namespace of the written object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Reach limits requests that come through the hub.
type Reach struct {
	// Users that may send requests, by their names in this cluster. Default: all.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Users []Pattern `json:"users,omitempty"`
	// Groups of the users that are passed on; others are dropped. Default: all.
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
