package v1alpha1

import (
	"time"

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
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1
// +kubebuilder:printcolumn:name="Connection",type=string,JSONPath=`.spec.connection.type`,priority=1
// +kubebuilder:printcolumn:name="Expiring",type=string,JSONPath=`.status.conditions[?(@.type=="CertificateExpiring")].status`,priority=1
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

	// Mode says where the agent runs that the hub is responsible for. Pull: in the
	// member, installed there; the hub starts none and uses no credentials of the
	// member. Push: in the hub, with the credentials that "atoll join --push" has put
	// into a Secret of the hub's own namespace. An agent in the member may go on beside
	// it: one of the two works, the other stands by. What is placed is not touched by a
	// change of mode. Default Pull.
	// +optional
	Mode ClusterMode `json:"mode,omitempty"`

	// Connection says how the agent keeps in touch with the hub. Default: it holds a
	// stream. The agent learns of a change with its stream, or at its next check-in.
	// +optional
	Connection *ClusterConnection `json:"connection,omitempty"`

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
	// Bundles away; PreferNoSchedule lowers the cluster's score where a placement
	// chooses among clusters, and does nothing where all that fit are taken; NoExecute
	// also moves those that are there, after their toleration, replacements first.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	Taints []Taint `json:"taints,omitempty"`

	// ReportedRoom says whether the room that the agent reports steers placement: how
	// many new replicas placements by available replicas, and aggregated ones, give the
	// cluster. It never takes away what runs. Ignore treats the cluster as one whose
	// room nobody knows. Default Use.
	// +optional
	// +kubebuilder:validation:Enum=Use;Ignore
	ReportedRoom ReportedRoom `json:"reportedRoom,omitempty"`

	// Capacity is the most that Atoll places in the cluster, over all Bundles. Nothing
	// new comes that would exceed a bound, and no share or revision that asks for more
	// than is left; what runs already stays, also where a bound is lowered. Default:
	// unbounded.
	// +optional
	Capacity *ClusterCapacity `json:"capacity,omitempty"`

	// Removal takes the cluster out of the fleet, step by step: nothing new is placed
	// there, what is there leaves once what replaces it elsewhere is healthy, the agent lets
	// go of the member, and then the Cluster is gone. Taken away before that, it is taken
	// back, and the placements decide anew. The condition Removing tells what it waits for.
	// Default: the cluster stays.
	// +optional
	Removal *ClusterRemoval `json:"removal,omitempty"`
}

// ClusterRemoval is how a cluster leaves the fleet.
type ClusterRemoval struct {
	// Mode says what becomes of what Atoll applied in the member.
	Mode ClusterRemovalMode `json:"mode"`
	// Force gives the cluster up at once, for one that does not come back: whatever it holds
	// stays there, and what that is, as far as the hub knows, is written to the ConfigMap
	// removed-NAME in the namespace atoll-system. Default false.
	// +optional
	Force bool `json:"force,omitempty"`
	// Confirm releases what a removal with mode Clean would take away: until it is
	// status.removal.plan, nothing leaves where Bundles are in the cluster. `atoll confirm
	// cluster/NAME` writes it. One that is not the plan of what is there now is refused, and
	// each removal has plans of its own. Default: nothing is confirmed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Confirm string `json:"confirm,omitempty"`
}

// RemovalHeld tells whether all that is in the cluster stays although the cluster is to be
// cleaned: that is not confirmed, or the leading hub has not found yet that what was
// confirmed is what it would remove.
func (c *Cluster) RemovalHeld() bool {
	r, s := c.Spec.Removal, c.Status.Removal
	return r != nil && r.Mode == ClusterClean && (r.Confirm == "" || s == nil || s.Confirmed != r.Confirm)
}

// ClusterRemovalMode says what becomes of what Atoll applied.
// +kubebuilder:validation:Enum=Orphan;Clean
type ClusterRemovalMode string

const (
	// ClusterOrphan leaves what Atoll applied where it is, without Atoll's labels and
	// its ownership of fields.
	ClusterOrphan ClusterRemovalMode = "Orphan"
	// ClusterClean removes what Atoll applied, and the namespaces that its agent made once
	// nothing else is in them. What was there before Atoll stays, and what policies
	// orphan. It waits for a confirmation.
	ClusterClean ClusterRemovalMode = "Clean"
)

// ClusterCapacity bounds what Atoll places in a cluster, as templates and divisions
// state it; what overrides change in one cluster, what autoscalers add and what others
// run there are not counted. A row counts until its cluster has removed it.
type ClusterCapacity struct {
	// Replicas are pods at most: the replicas of workloads, 1 for a Pod, a Job's
	// parallelism as long as the Job is placed. What runs once per node (DaemonSets) and
	// what only makes Jobs (CronJobs) counts none. Default: unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int64 `json:"replicas,omitempty"`
	// Objects are items of Bundles at most, dependencies among them. Default: unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int64 `json:"objects,omitempty"`
	// Resources bound the sum of what these pods request, by the name of the resource:
	// cpu, memory, ephemeral-storage, hugepages-2Mi, nvidia.com/gpu and so on; pods
	// bounds their number, as replicas does. What a pod states only limits of counts by
	// those. Default: a resource that is not named is unbounded.
	// At most 64.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// ReportedRoom says whether reports of room steer placement.
type ReportedRoom string

// What becomes of reported room.
const (
	RoomUse    ReportedRoom = "Use"
	RoomIgnore ReportedRoom = "Ignore"
)

// ClusterMode says where a cluster's agent runs.
// +kubebuilder:validation:Enum=Pull;Push
type ClusterMode string

// Where agents run.
const (
	ModePull ClusterMode = "Pull"
	ModePush ClusterMode = "Push"
)

// Pushed tells whether the hub is to run the agent.
func (s *ClusterSpec) Pushed() bool { return s.Accepted && s.Mode == ModePush }

// ConnectionType is how an agent keeps in touch.
// +kubebuilder:validation:Enum=Stream;CheckIn
type ConnectionType string

const (
	// ConnectionStream: the agent holds one stream to the hub and reacts within
	// seconds. Ready turns Unknown within 40 s after the stream was lost.
	ConnectionStream ConnectionType = "Stream"
	// ConnectionCheckIn: the agent dials every interval, takes what changed, reports
	// and ends the stream, so that a hub has many more members. Ready turns Unknown
	// after two missed check-ins.
	ConnectionCheckIn ConnectionType = "CheckIn"
)

// ClusterConnection is how an agent keeps in touch with the hub.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'CheckIn') || !has(self.interval)",message="interval is for type CheckIn"
type ClusterConnection struct {
	// Type of the connection. Default Stream.
	// +optional
	// +kubebuilder:default=Stream
	Type ConnectionType `json:"type,omitempty"`
	// Interval between two check-ins, from 10s to 24h; only with CheckIn. Agents
	// spread themselves over it. Default 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval must be a duration from 10s to 24h, such as 15m"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// The bounds of a check-in interval, and what it is when nobody says.
const (
	DefaultCheckIn = 15 * time.Minute
	MinCheckIn     = 10 * time.Second
	MaxCheckIn     = 24 * time.Hour
)

// CheckIn is how often the agent is to check in; 0: it holds a stream.
func (s *ClusterSpec) CheckIn() time.Duration {
	switch {
	case s.Connection == nil || s.Connection.Type != ConnectionCheckIn:
		return 0
	case s.Connection.Interval == nil:
		return DefaultCheckIn
	}
	return min(max(s.Connection.Interval.Duration, MinCheckIn), MaxCheckIn)
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
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
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
	// ClusterReady is true while the agent's stream lives, or its check-ins come, and
	// the member's API answers it. It is Unknown from 40 s after the stream was lost,
	// or when two check-ins were missed.
	ClusterReady = "Ready"
	// ClusterPushed is there while mode is Push, or the hub keeps credentials of the
	// member that it does not use: whether the hub's agent works on the member, or
	// stands by there, and what keeps it.
	ClusterPushed = "Pushed"
	// ClusterCertificateExpiring is there, and true, while the agent is in touch and has
	// not renewed its certificate, of whose life less than a quarter is left.
	ClusterCertificateExpiring = "CertificateExpiring"
	// ClusterRemoving is there, and true, while spec.removal is: how far that is, what it
	// waits for, and who is to act.
	ClusterRemoving = "Removing"
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
	// Properties that the agent reports, by name: version.atoll.dev, nodes.atoll.dev,
	// and, guessed from its nodes, provider.atoll.dev and region.atoll.dev; and the
	// member's ClusterProperty objects (about.k8s.io), if it has any. At most 64. None
	// steers placement unless the hub's HubSettings lists it.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Properties []ClusterProperty `json:"properties,omitempty"`
	// Removal tells how far spec.removal is.
	// +optional
	Removal *ClusterRemovalStatus `json:"removal,omitempty"`
	// Conditions: Accepted, Joined, Ready, with mode Push Pushed, and Removing
	// while the cluster is removed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterRemovalStatus counts Bundles.
type ClusterRemovalStatus struct {
	// Bundles that were in the cluster since its removal began.
	Bundles int32 `json:"bundles"`
	// Gone of them.
	Gone int32 `json:"gone"`
	// Plan is the hash of what the removal would take away and waits for spec.removal.confirm
	// with: the items of all Bundles that are there, and which removal it is. Empty: it does
	// not wait for that.
	// +optional
	Plan string `json:"plan,omitempty"`
	// Confirmed is the plan that was confirmed, and that the leading hub found to be what it
	// would take away; it is carried out. Empty: none is.
	// +optional
	Confirmed string `json:"confirmed,omitempty"`
	// AgentWaitsFor is what keeps the agent from letting go of the member once no Bundle is
	// left in it, in its own words; empty: nothing that lasts.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AgentWaitsFor string `json:"agentWaitsFor,omitempty"`
	// AgentWaitsSince is since when, by the agent's clock.
	// +optional
	AgentWaitsSince *metav1.Time `json:"agentWaitsSince,omitempty"`
}

// ClusterProperty is one property; KEP-2149's name and value.
type ClusterProperty struct {
	// Name of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Value of the property.
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`
}

// The bounds of what is kept of an agent's properties.
const (
	MaxProperties    = 64
	MaxPropertyName  = 253
	MaxPropertyValue = 256
)

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
	// Requested by pods that are bound and not finished, cpu, memory and so on, and
	// their number as pods, rounded up to two significant digits, so that ordinary
	// churn writes nothing.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// Room that nodes have left for pods, written when it changes by an eighth of some
	// resource, and by less every 10 minutes at most. Absent where the agent does not tell
	// it.
	// +optional
	Room *NodeRoom `json:"room,omitempty"`
}

// NodeRoom is what nodes that are ready and not cordoned have left for pods.
type NodeRoom struct {
	// Classes of nodes that have about as much left, rounded down, one text each, such
	// as "3 cpu=3500m memory=12288Mi pods=90 nvidia.com/gpu=2 taints=gpu=yes:NoSchedule":
	// three nodes with that much each. At most 24 are told; nodes that can take no
	// pod are in none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=1024
	Classes []string `json:"classes,omitempty"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cluster `json:"items"`
}
