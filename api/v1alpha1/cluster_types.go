package v1alpha1

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cluster is one member: a Kubernetes cluster in which an agent runs. Its metadata.uid is its
// identity, which its agent's certificate carries; the name is for people. Labels and taints
// steer placement. The hub sets them, never the agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=clu,categories=atoll
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

// The keys of the NoExecute taints that the hub adds to lost clusters, as HubSettings.spec.failover states. Placements
// tolerate them as any other taint. A Bundle leaves such a cluster only when something replaces its copy.
const (
	// TaintUnreachable: the cluster has no connection to the hub.
	TaintUnreachable = "atoll.dev/unreachable"
	// TaintNotReady: the cluster reports that it is not ready.
	TaintNotReady = "atoll.dev/not-ready"
)

// LossTaints are the keys of the taints that the hub adds to lost clusters.
var LossTaints = []string{TaintUnreachable, TaintNotReady}

// IsOfLoss reports whether the taint is one that the hub adds to lost clusters, or one that a person gave its key.
func (t Taint) IsOfLoss() bool {
	return t.Effect == corev1.TaintEffectNoExecute && slices.Contains(LossTaints, t.Key)
}

// TaintDrain is the key of the NoExecute taint that drains a cluster. A Bundle leaves such a cluster only when something
// replaces its copy. With the value DrainRemoveUnreplaced, copies that nothing replaces leave too, if another cluster has
// the Bundle.
const (
	TaintDrain            = "atoll.dev/drain"
	DrainRemoveUnreplaced = "RemoveUnreplaced"
)

// FindDrain returns the taint that drains the cluster; nil: the cluster is not drained.
func (s *ClusterSpec) FindDrain() *Taint {
	for i := range s.Taints {
		if s.Taints[i].IsDrain() {
			return &s.Taints[i]
		}
	}
	return nil
}

// IsDrain reports whether the taint drains its cluster.
func (t Taint) IsDrain() bool {
	return t.Key == TaintDrain && t.Effect == corev1.TaintEffectNoExecute
}

// EndsWithUncordon reports whether `kubectl uncordon` removes the taint: that of a cordon, or that of a drain.
func (t Taint) EndsWithUncordon() bool {
	return t.Key == corev1.TaintNodeUnschedulable && t.Effect == corev1.TaintEffectNoSchedule || t.IsDrain()
}

// ClusterSpec is what the hub's administrator states about a member.
type ClusterSpec struct {
	// Accepted is the hub's consent to the cluster. Setting it to true needs the verb `accept`
	// on clusters. False disconnects the agent at once. Default false.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// Mode specifies where the agent runs. Pull: in the member, where it is installed; the hub
	// starts no agent and uses no credentials of the member. Push: in the hub, with the
	// credentials that "atoll join --push" has put into a Secret of the hub's own namespace. An
	// agent in the member may keep running: one of the two works, the other stands by. A change
	// of mode does not change placed workloads. Default Pull.
	// +optional
	Mode ClusterMode `json:"mode,omitempty"`

	// Connection specifies how the agent communicates with the hub. Default: it holds a stream. A
	// change reaches the agent by its stream, or at its next check-in.
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

	// Zones within the region, for a member with nodes in several. A field selector over zone matches where one of them
	// does, and a spread over zone counts the cluster in each. Not together with zone. At most 16.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Zones []string `json:"zones,omitempty"`

	// Provider of the member's machines. Field selectors match it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`

	// TimeZone of the cluster, such as Europe/Oslo. Change windows with useClusterTimeZone follow it. Default: the time zone
	// that the window states.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`

	// Taints repel placements that do not tolerate them. NoSchedule keeps new Bundles away.
	// PreferNoSchedule lowers the cluster's score where a placement chooses among clusters; it
	// has no effect where all fitting clusters are chosen. NoExecute also moves Bundles that
	// are in the cluster, after their toleration, replacements first.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=key
	// +listMapKey=effect
	Taints []Taint `json:"taints,omitempty"`

	// ReportedRoom specifies whether the free capacity that the agent reports steers placement. It
	// bounds the new replicas that the cluster gets from placements by available replicas and
	// from aggregated placements. It never removes running replicas. Ignore treats the free
	// capacity of the cluster as unknown. Default Use.
	// +optional
	// +kubebuilder:validation:Enum=Use;Ignore
	ReportedRoom ReportedRoom `json:"reportedRoom,omitempty"`

	// Capacity is the most that Atoll places in the cluster, over all Bundles. No new Bundle,
	// no assignment of replicas and no revision may exceed a bound. Running workloads stay,
	// also after a bound is lowered. Default: unbounded.
	// +optional
	Capacity *ClusterCapacity `json:"capacity,omitempty"`

	// Removal takes the cluster out of the fleet in steps. Nothing new is placed there. Placed
	// workloads leave once their replacements elsewhere are healthy. The agent removes its own
	// state from the member, and then the Cluster is deleted. A person that deletes this field
	// before the end cancels the removal, and the placements decide again. The condition
	// Removing reports what the removal waits for. Default: the cluster stays.
	// +optional
	Removal *ClusterRemoval `json:"removal,omitempty"`
}

// MaxZones is the most zones that a Cluster states.
const MaxZones = 16

// ListZones returns the zones of the cluster, from zone or zones. The list may be the spec's own.
func (s *ClusterSpec) ListZones() []string {
	if len(s.Zones) == 0 && s.Zone != "" {
		return []string{s.Zone}
	}
	return s.Zones
}

// ClusterRemoval is how a cluster leaves the fleet.
type ClusterRemoval struct {
	// Mode specifies what happens to the objects that Atoll applied in the member.
	Mode ClusterRemovalMode `json:"mode"`
	// Force removes the cluster at once, for a member that does not come back. All objects stay
	// in the member. The hub lists its recorded objects in the ConfigMap removed-NAME in
	// the namespace atoll-system. Default false.
	// +optional
	Force bool `json:"force,omitempty"`
	// Confirm releases the deletions of a removal with mode Clean. No Bundle leaves the cluster
	// until this field equals status.removal.plan. `atoll confirm cluster/NAME` writes it. A
	// value that is not the current plan is refused, and each removal has plans of its own.
	// Default: nothing is confirmed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Confirm string `json:"confirm,omitempty"`
}

// IsRemovalHeld reports whether a removal with mode Clean still waits. It waits until its plan is
// confirmed, and until the leading hub has checked that the confirmed plan is the current one.
func (c *Cluster) IsRemovalHeld() bool {
	r, s := c.Spec.Removal, c.Status.Removal
	return r != nil && r.Mode == ClusterClean && (r.Confirm == "" || s == nil || s.Confirmed != r.Confirm)
}

// ClusterRemovalMode specifies what happens to the objects that Atoll applied.
// +kubebuilder:validation:Enum=Orphan;Clean
type ClusterRemovalMode string

const (
	// ClusterOrphan keeps the applied objects, without Atoll's labels and its ownership of
	// fields.
	ClusterOrphan ClusterRemovalMode = "Orphan"
	// ClusterClean deletes the applied objects, and the namespaces that the agent made once
	// nothing else is in them. Adopted objects and objects that policies orphan stay. It waits
	// for a confirmation.
	ClusterClean ClusterRemovalMode = "Clean"
)

// ClusterCapacity bounds the workloads that Atoll places in a cluster, as templates and
// divisions state them. Changes by overrides or autoscalers, and workloads of others, are not
// counted. A row counts until its cluster has removed it.
type ClusterCapacity struct {
	// Replicas is the maximum number of pods: the replicas of workloads, 1 for a Pod, a Job's
	// parallelism as long as the Job is placed. DaemonSets and CronJobs count none. Default:
	// unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int64 `json:"replicas,omitempty"`
	// Objects is the maximum number of items of Bundles, dependencies included. Default:
	// unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int64 `json:"objects,omitempty"`
	// Resources bound the sum of what these pods request, by the name of the resource: cpu,
	// memory, ephemeral-storage, hugepages-2Mi, nvidia.com/gpu and so on; pods bounds their
	// number, as replicas does. A pod that states only limits counts by its limits. Default: a
	// resource that is not named is unbounded. At most 64.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
}

// ReportedRoom specifies whether reports of free capacity steer placement.
type ReportedRoom string

// The uses of reported free capacity.
const (
	RoomUse    ReportedRoom = "Use"
	RoomIgnore ReportedRoom = "Ignore"
)

// ClusterMode specifies where a cluster's agent runs.
// +kubebuilder:validation:Enum=Pull;Push
type ClusterMode string

// The modes.
const (
	ModePull ClusterMode = "Pull"
	ModePush ClusterMode = "Push"
)

// IsPushed reports whether the hub must run the agent.
func (s *ClusterSpec) IsPushed() bool { return s.Accepted && s.Mode == ModePush }

// ConnectionType is how an agent communicates with the hub.
// +kubebuilder:validation:Enum=Stream;CheckIn
type ConnectionType string

const (
	// ConnectionStream: the agent holds one stream to the hub and reacts within
	// seconds. Ready turns Unknown within 40 s after the stream was lost.
	ConnectionStream ConnectionType = "Stream"
	// ConnectionCheckIn: the agent dials every interval, gets the changes, reports and ends the
	// stream. A hub can have many more such members. Ready turns Unknown after two missed
	// check-ins.
	ConnectionCheckIn ConnectionType = "CheckIn"
)

// ClusterConnection is how an agent communicates with the hub.
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'CheckIn') || !has(self.interval)",message="interval is for type CheckIn"
type ClusterConnection struct {
	// Type of the connection. Default Stream.
	// +optional
	// +kubebuilder:default=Stream
	Type ConnectionType `json:"type,omitempty"`
	// Interval between two check-ins, from 10s to 24h; only with type CheckIn. Agents
	// spread themselves over it. Default 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('24h')",message="interval must be a duration from 10s to 24h, such as 15m"
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// The bounds and the default of a check-in interval.
const (
	DefaultCheckIn = 15 * time.Minute
	MinCheckIn     = 10 * time.Second
	MaxCheckIn     = 24 * time.Hour
)

// CheckInInterval returns the interval of the agent's check-ins; 0: the agent holds a stream.
func (s *ClusterSpec) CheckInInterval() time.Duration {
	switch {
	case s.Connection == nil || s.Connection.Type != ConnectionCheckIn:
		return 0
	case s.Connection.Interval == nil:
		return DefaultCheckIn
	}
	return min(max(s.Connection.Interval.Duration, MinCheckIn), MaxCheckIn)
}

// Taint of a Cluster, with the meaning of a node's taint in core/v1.
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
	// TimeAdded is when a NoExecute taint was added. The tolerationSeconds count from it. The
	// hub sets it when it is missing.
	// +optional
	TimeAdded *metav1.Time `json:"timeAdded,omitempty"`
}

// Condition types of a Cluster. The first write of the status has all of them but Pushed,
// Removing and Draining. Those that report a rare trouble have no message while they are false.
const (
	// ClusterAccepted mirrors spec.accepted; its message names the person that must act.
	ClusterAccepted = "Accepted"
	// ClusterJoined is true once the agent has connected with its certificate.
	ClusterJoined = "Joined"
	// ClusterMisbehaving is true after the agent sent what no agent may send. It turns false with an
	// inventory after ten minutes without.
	ClusterMisbehaving = "Misbehaving"
	// ClusterReady is true while the agent is connected, or checks in, and the member's API
	// server answers. It is Unknown from 40 s after the stream was lost, or when two check-ins
	// were missed.
	ClusterReady = "Ready"
	// ClusterUnclaimed is true while the member holds bundles without a row on the hub.
	ClusterUnclaimed = "Unclaimed"
	// ClusterPushed exists while mode is Push, or while the hub keeps unused credentials of the
	// member. It reports whether the hub's agent works on the member or stands by, and what
	// prevents its work.
	ClusterPushed = "Pushed"
	// ClusterCertificateExpiring is true while a connected agent has not renewed its certificate
	// although less than a quarter of its lifetime is left.
	ClusterCertificateExpiring = "CertificateExpiring"
	// ClusterRemoving exists, and is true, while spec.removal is set. It reports the progress,
	// what the removal waits for, and the person or component that must act.
	ClusterRemoving = "Removing"
	// ClusterDraining exists while the cluster has the taint atoll.dev/drain. It is true while a
	// Bundle leaves or cannot leave, and false when all have left. It reports the progress,
	// and what the drain waits for.
	ClusterDraining = "Draining"
)

// ClusterStatus is the last report of the agent. It is written on change only.
type ClusterStatus struct {
	// KubernetesVersion of the member, such as "v1.36.3".
	// +optional
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// AgentVersion that the agent reports.
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
	// member's ClusterProperty objects (about.k8s.io), if it has any; and the values of node labels that
	// the member's AgentPolicy states. At most 64. None steers placement unless the hub's HubSettings lists it.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Properties []ClusterProperty `json:"properties,omitempty"`
	// Removal is the progress of spec.removal.
	// +optional
	Removal *ClusterRemovalStatus `json:"removal,omitempty"`
	// Drain is the progress of the drain while the cluster has the taint atoll.dev/drain.
	// +optional
	Drain *ClusterDrainStatus `json:"drain,omitempty"`
	// Conditions: Accepted, Joined, Ready, Misbehaving, Unclaimed, CertificateExpiring; with mode
	// Push Pushed, Removing while the cluster is removed, and Draining while it is drained.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterRemovalStatus is the progress of a removal.
type ClusterRemovalStatus struct {
	// Bundles is the number of Bundles in the cluster since its removal began.
	Bundles int32 `json:"bundles"`
	// Gone is the number of these Bundles that left.
	Gone int32 `json:"gone"`
	// Plan is the hash of the deletions that wait for spec.removal.confirm: the items of all
	// Bundles in the cluster, and the removal itself. Empty: no deletion waits.
	// +optional
	Plan string `json:"plan,omitempty"`
	// Confirmed is the plan that was confirmed and that the leading hub carries out. Empty:
	// none.
	// +optional
	Confirmed string `json:"confirmed,omitempty"`
	// AgentWaitsFor is what the agent waits for before it leaves the member, once no Bundle is
	// left there. Empty: nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	AgentWaitsFor string `json:"agentWaitsFor,omitempty"`
	// AgentWaitsSince is when that wait began, by the agent's clock.
	// +optional
	AgentWaitsSince *metav1.Time `json:"agentWaitsSince,omitempty"`
}

// ClusterDrainStatus counts the Bundles of a cluster that is drained.
type ClusterDrainStatus struct {
	// Since is when the taint was added.
	Since metav1.Time `json:"since"`
	// Bundles is the number of Bundles that were in the cluster since then.
	Bundles int32 `json:"bundles"`
	// Left is the number of these Bundles that have left.
	Left int32 `json:"left"`
	// Waiting is the number of Bundles that are to leave.
	Waiting int32 `json:"waiting"`
	// CannotLeave is the number of Bundles that nothing can replace now.
	CannotLeave int32 `json:"cannotLeave"`
	// Stays is the number of Bundles that stay by their placements: each fitting cluster has a
	// copy of its own, or the placement tolerates the taint.
	Stays int32 `json:"stays"`
}

// ClusterProperty is one property, with the name and value of KEP-2149.
type ClusterProperty struct {
	// Name of the property.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Value of the property.
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`
}

// The bounds of an agent's properties.
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
	// Requested by pods that are bound and not finished: cpu, memory and other resources, and
	// their number as pods. Values are rounded up to two significant digits, so that small
	// changes write nothing.
	// +optional
	Requested corev1.ResourceList `json:"requested,omitempty"`
	// FreeCapacity of the nodes. It is written when it changes by an eighth of some resource, and
	// for smaller changes every 10 minutes at most. Absent where the agent does not report it.
	// +optional
	FreeCapacity *FreeCapacity `json:"freeCapacity,omitempty"`
	// Room is the free capacity as text, for hubs of v0.1.0. Deprecated: use freeCapacity. Room is
	// read where freeCapacity is absent, and v0.3.0 does not write it any more.
	// +optional
	Room *NodeRoom `json:"room,omitempty"`
}

// FreeCapacity is the free capacity of the nodes that are ready and not cordoned.
type FreeCapacity struct {
	// NodeClasses are classes of nodes with about the same free capacity, rounded down. At most 24
	// are reported. Nodes that can take no pod are in no class.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeClasses []NodeClass `json:"nodeClasses,omitempty"`
	// NodeGroups are all nodes by their taints and reported labels, also those that are full, cordoned
	// or not ready. At most 12 are reported. There are none while the agent reports none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	NodeGroups []NodeGroup `json:"nodeGroups,omitempty"`
	// UnreportedLabels are node labels that nodeGroups leave out for their size or number: a key, all
	// keys of a domain such as "feature.node.kubernetes.io/*", or "*". The hub takes requirements of pods
	// about such labels, and about kubernetes.io/hostname, as met.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=320
	UnreportedLabels []string `json:"unreportedLabels,omitempty"`
}

// NodeGroup is the nodes with the same taints and reported labels.
type NodeGroup struct {
	// Nodes in the group.
	Nodes int32 `json:"nodes"`
	// Labels that every node of the group has.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the nodes that repel pods. They have no timeAdded.
	// +optional
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`
	// Largest is the most of each resource that a node of the group has without pods, rounded up.
	// +optional
	Largest corev1.ResourceList `json:"largest,omitempty"`
}

// NodeClass is a number of nodes with about the same free capacity.
type NodeClass struct {
	// Nodes in the class.
	Nodes int32 `json:"nodes"`
	// Free is what each node has left at least: cpu, memory, pods and other resources, such as
	// nvidia.com/gpu. A resource that is not named is used up, or the nodes do not have it.
	// +optional
	Free corev1.ResourceList `json:"free,omitempty"`
	// Taints of the nodes that repel pods. They have no timeAdded.
	// +optional
	// +listType=atomic
	Taints []Taint `json:"taints,omitempty"`
	// NodeGroup is the position in nodeGroups, from 1, of the group of the nodes. 0: it is not known.
	// +optional
	NodeGroup int32 `json:"nodeGroup,omitempty"`
}

// NodeRoom is the free capacity as v0.1.0 wrote it. Deprecated: use FreeCapacity.
type NodeRoom struct {
	// Classes of nodes with about the same free capacity, rounded down, one text each, such as
	// "3 cpu=3500m memory=12288Mi pods=90 nvidia.com/gpu=2 taints=gpu=yes:NoSchedule": three
	// nodes with that much each. At most 24 are reported. Nodes that can take no pod are in no
	// class.
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
