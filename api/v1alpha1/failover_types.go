package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Failover of a policy: what moves although its cluster is connected and fits. Lost clusters are a matter of the HubSettings.
type Failover struct {
	// Application moves an application that is unhealthy in a connected cluster to another cluster. Absent: health moves nothing.
	// +optional
	Application *ApplicationFailover `json:"application,omitempty"`
}

// ApplicationFailover moves a copy of a Bundle that is unhealthy for some time to another cluster that fits. Nothing moves that has no
// other place.
type ApplicationFailover struct {
	// DecisionConditions state when a copy counts as failed.
	// +optional
	DecisionConditions *FailoverConditions `json:"decisionConditions,omitempty"`
	// PurgeMode states when the old copy is removed. Gracefully: when the replacement is healthy, or gracePeriodSeconds are over. Directly:
	// as soon as the replacement is ordered. Never: when a person confirms it. An old copy that is healthy again waits for a healthy
	// replacement. Graciously and Immediately are older words of Karmada for the first two. Default Gracefully.
	// +optional
	// +kubebuilder:validation:Enum=Directly;Gracefully;Never;Immediately;Graciously
	PurgeMode PurgeMode `json:"purgeMode,omitempty"`
	// GracePeriodSeconds is how long the old copy waits at most for a healthy replacement. For purgeMode Gracefully alone. Default 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	GracePeriodSeconds *int32 `json:"gracePeriodSeconds,omitempty"`
	// BackoffSeconds is how long a cluster is not chosen again after the application left it. It doubles with each further failover out
	// of the same cluster, up to 6 hours, or to backoffSeconds where these are longer. Default 1800. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	BackoffSeconds *int32 `json:"backoffSeconds,omitempty"`
	// MaxAvoidedClusters is how many clusters the application leaves or avoids for its health at one time. A further copy that fails stays
	// until the backoff of one of them ends. Default 3. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	MaxAvoidedClusters *int32 `json:"maxAvoidedClusters,omitempty"`
}

// FailoverConditions state when a copy counts as failed.
type FailoverConditions struct {
	// TolerationSeconds is how long a copy is unhealthy without a break, in a connected cluster, before it counts as failed. Default 300.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=604800
	TolerationSeconds *int32 `json:"tolerationSeconds,omitempty"`
}

// PurgeMode is when the old copy of a failed application is removed.
type PurgeMode string

// The purge modes, and the older words for two of them.
const (
	PurgeDirectly    PurgeMode = "Directly"
	PurgeGracefully  PurgeMode = "Gracefully"
	PurgeNever       PurgeMode = "Never"
	PurgeImmediately PurgeMode = "Immediately"
	PurgeGraciously  PurgeMode = "Graciously"
)

// Bounds of what is stored about a failover.
const (
	// MaxFailoverClusters is how many clusters the status of a Bundle lists.
	MaxFailoverClusters = 16
	// maxFailoverBackoff is where a backoff stops to double.
	maxFailoverBackoff = 6 * time.Hour
)

// GetApplication returns the failover of the application; nil: health moves nothing.
func (f *Failover) GetApplication() *ApplicationFailover {
	if f == nil {
		return nil
	}
	return f.Application
}

// Toleration returns how long a copy is unhealthy before it counts as failed.
func (a *ApplicationFailover) Toleration() time.Duration {
	if a == nil || a.DecisionConditions == nil {
		return 300 * time.Second
	}
	return secondsOr(a.DecisionConditions.TolerationSeconds, 300)
}

// Purge returns when the old copy is removed, in the present words.
func (a *ApplicationFailover) Purge() PurgeMode {
	if a == nil {
		return PurgeGracefully
	}
	switch a.PurgeMode {
	case PurgeDirectly, PurgeImmediately:
		return PurgeDirectly
	case PurgeNever:
		return PurgeNever
	}
	return PurgeGracefully
}

// GracePeriod returns how long an old copy waits at most for a healthy replacement.
func (a *ApplicationFailover) GracePeriod() time.Duration {
	if a == nil {
		return 600 * time.Second
	}
	return secondsOr(a.GracePeriodSeconds, 600)
}

// MaxAvoided returns how many clusters the application leaves or avoids at one time.
func (a *ApplicationFailover) MaxAvoided() int {
	if a == nil || a.MaxAvoidedClusters == nil {
		return 3
	}
	return int(*a.MaxAvoidedClusters)
}

// Backoff returns how long a cluster is avoided after so many failovers out of it.
func (a *ApplicationFailover) Backoff(failovers int32) time.Duration {
	base := 1800 * time.Second
	if a != nil {
		base = secondsOr(a.BackoffSeconds, 1800)
	}
	d, most := base, max(base, maxFailoverBackoff)
	for range failovers - 1 {
		if d *= 2; d >= most {
			return most
		}
	}
	return d
}

func secondsOr(n *int32, otherwise int32) time.Duration {
	if n != nil {
		otherwise = *n
	}
	return time.Duration(otherwise) * time.Second
}

// ApplicationFailoverStatus is what the hub stores about the health of an application, so that its moves are bounded.
type ApplicationFailoverStatus struct {
	// HealthyRevision is the latest revision that some cluster has reported healthy. A copy of a later one does not move for its health:
	// the revision may be at fault.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	HealthyRevision string `json:"healthyRevision,omitempty"`
	// Clusters in which the application is unhealthy, and those that it left for its health, by name.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=cluster
	Clusters []FailoverCluster `json:"clusters,omitempty"`
	// ClustersBeforeFailover had a copy when one failed last: the first 16 by name.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	ClustersBeforeFailover []string `json:"clustersBeforeFailover,omitempty"`
}

// FailoverCluster is a cluster in which the application is unhealthy, or which it left for its health.
type FailoverCluster struct {
	// Cluster by name.
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster"`
	// ClusterUID distinguishes Clusters of one name.
	// +kubebuilder:validation:MaxLength=128
	ClusterUID string `json:"clusterUID"`
	// Revision of the copy.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision,omitempty"`
	// UnhealthySince is since when the copy is unhealthy without a break, by the clock of the hub. Absent: the copy has left.
	// +optional
	UnhealthySince *metav1.Time `json:"unhealthySince,omitempty"`
	// FailedAt is when the copy counted as failed. Absent: it does not yet.
	// +optional
	FailedAt *metav1.Time `json:"failedAt,omitempty"`
	// AvoidedUntil is until when the cluster is not chosen again. Absent: the copy is there for the first time.
	// +optional
	AvoidedUntil *metav1.Time `json:"avoidedUntil,omitempty"`
	// Failovers counts how often the application left the cluster for its health. The count begins again when the cluster had
	// no failure for as long as its last backoff after it.
	// +optional
	Failovers int32 `json:"failovers,omitempty"`
}

// IsClock reports whether the copy is unhealthy and does not count as failed yet.
func (c *FailoverCluster) IsClock() bool {
	return c != nil && c.UnhealthySince != nil && c.FailedAt == nil
}

// HasFailed reports whether the copy counts as failed, and has not left yet.
func (c *FailoverCluster) HasFailed() bool {
	return c != nil && c.UnhealthySince != nil && c.FailedAt != nil
}

// IsAvoided reports whether the cluster is not chosen at a time, since the application left it.
func (c *FailoverCluster) IsAvoided(now time.Time) bool {
	return c != nil && c.AvoidedUntil != nil && c.AvoidedUntil.After(now)
}
