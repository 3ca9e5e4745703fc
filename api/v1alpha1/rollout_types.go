package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rollout bounds how fast a change of templates or override rules reaches the clusters.
//
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Staged') == (has(self.stages) && size(self.stages) > 0 || has(self.autoStages) && size(self.autoStages) > 0)",message="stages and autoStages need type: Staged, and type: Staged needs one of them"
// +kubebuilder:validation:XValidation:rule="!(has(self.stages) && size(self.stages) > 0 && has(self.autoStages) && size(self.autoStages) > 0)",message="give stages or autoStages, and not both"
// +kubebuilder:validation:XValidation:rule="!has(self.autoStageOptions) || has(self.autoStages) && size(self.autoStages) > 0",message="autoStageOptions need autoStages"
type Rollout struct {
	// Type: All (default) changes all clusters at once, within maxUnavailable. Staged changes the
	// clusters of one stage after those of the stage before are healthy.
	// +optional
	// +kubebuilder:default=All
	// +kubebuilder:validation:Enum=All;Staged
	Type RolloutType `json:"type,omitempty"`
	// MaxUnavailable is how many connected clusters may be unhealthy, over all stages, when a healthy
	// cluster changes: a number, or a percentage of the connected clusters, rounded down, at least 1.
	// Clusters that are unhealthy for other reasons count. It also bounds the first installation.
	// Absent: no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Stages in their order. A cluster is in the first stage that chooses it. A last stage named rest
	// has the clusters that no stage chooses.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Stages []RolloutStage `json:"stages,omitempty"`
	// AutoStages are the sizes of stages whose clusters Atoll chooses: how many clusters have changed after each
	// stage. Numbers come before percentages of the connected clusters, rounded up, and both ascend. A last stage
	// of 100% may be left out. A cluster that joins later is in the last stage.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XIntOrString
	// +listType=atomic
	AutoStages []intstr.IntOrString `json:"autoStages,omitempty"`
	// AutoStageOptions hold for each stage of autoStages.
	// +optional
	AutoStageOptions *AutoStageOptions `json:"autoStageOptions,omitempty"`
	// Windows are times at which changes may start, or may not. A cluster that an Allow window concerns changes
	// only while such a window is open. While a Deny window that concerns it is open, it does not change. A change that has started goes
	// on. Rollbacks, moves to other clusters and removals of clusters do not wait.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []ChangeWindow `json:"windows,omitempty"`
}

// ChangeWindow is a time that comes again, by a schedule.
type ChangeWindow struct {
	// Type: Allow lets changes start while the window is open. Deny lets none start then.
	Type ChangeWindowType `json:"type"`
	// Schedule of the starts in five fields of cron: minute, hour, day of the month, month and day of the week. A start
	// that the clock skips in the time zone comes when the clock jumps. A start that the clock shows twice comes twice.
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$`
	Schedule string `json:"schedule"`
	// Duration for which the window is open after each start, from 1m to 744h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('744h')",message="duration must be a duration from 1m to 744h, such as 4h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone of the schedule, such as Europe/Oslo. Default UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`
	TimeZone string `json:"timeZone,omitempty"`
	// UseClusterTimeZone: the schedule follows the clock of each cluster, by the timeZone of its Cluster. The window's own
	// timeZone is for Clusters without one. Default false.
	// +optional
	UseClusterTimeZone bool `json:"useClusterTimeZone,omitempty"`
	// ClusterSelector chooses the clusters that the window concerns, by the labels of Clusters. Absent: all.
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
}

// ChangeWindowType is what an open window does.
// +kubebuilder:validation:Enum=Allow;Deny
type ChangeWindowType string

// The types of change windows.
const (
	ChangeWindowAllow ChangeWindowType = "Allow"
	ChangeWindowDeny  ChangeWindowType = "Deny"
)

// RolloutType is how a change reaches the clusters.
type RolloutType string

// The types of rollouts.
const (
	RolloutAll    RolloutType = "All"
	RolloutStaged RolloutType = "Staged"
)

// The bound of a Bundle that states no rollout: a change keeps DefaultMaxUnavailable once the Bundle has more than
// DefaultFreeClusters clusters.
const (
	DefaultMaxUnavailable = "25%"
	DefaultFreeClusters   = 4
)

// RestStage is the name of the stage of the clusters that no stated stage chooses.
const RestStage = "rest"

// RolloutStage is a part of the clusters that change together.
type RolloutStage struct {
	// Name of the stage. The name rest is not allowed.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Clusters of the stage.
	Clusters StageClusters `json:"clusters"`
	// MaxConcurrency is how many clusters of the stage change at one time: a number, or a percentage
	// of the stage's connected clusters, rounded up. Absent: all of them.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`
	// MaxFailures is how many clusters of the stage may fail: a number, or a percentage of the stage's
	// connected clusters, rounded down. One more holds the rollout until the template changes or a
	// person resumes. Default 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
	// MinSuccessTime is how long the clusters of the stage must be healthy without a break before the
	// next stage begins, from 0s to 168h. Default 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="minSuccessTime must be a duration from 0s to 168h, such as 10m"
	MinSuccessTime *metav1.Duration `json:"minSuccessTime,omitempty"`
	// ProgressDeadline is within which time a cluster of the stage must be healthy after its change, from 10s
	// to 168h. After that it counts as failed until it is healthy. For a cluster that checks in it is at least three of its
	// intervals. The time begins again when a disconnected cluster returns. Absent: only clusters that report a failure fail.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="progressDeadline must be a duration from 10s to 168h, such as 10m"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
	// OnFailure of more clusters than maxFailures, or of a gate. Pause (default) holds the rollout. Rollback returns the
	// clusters that have changed to their earlier revision, the last stage first. Continue goes on without the failed
	// clusters, and as if the gate had passed.
	// +optional
	// +kubebuilder:validation:Enum=Pause;Rollback;Continue
	OnFailure FailureAction `json:"onFailure,omitempty"`
	// GatesBefore hold the first cluster of the stage until all of them hold at one time, after the earlier
	// stages are done.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	GatesBefore []RolloutGate `json:"gatesBefore,omitempty"`
	// GatesAfter hold the next stage, like those before it.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	GatesAfter []RolloutGate `json:"gatesAfter,omitempty"`
}

// AutoStageOptions are the bounds and gates of each stage of autoStages, with the meaning that they have in stages.
type AutoStageOptions struct {
	// MaxConcurrency is how many clusters of the stage change at one time: a number, or a percentage
	// of the stage's connected clusters, rounded up. Absent: all of them.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`
	// MaxFailures is how many clusters of the stage may fail: a number, or a percentage of the stage's
	// connected clusters, rounded down. One more holds the rollout until the template changes or a
	// person resumes. Default 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
	// MinSuccessTime is how long the clusters of the stage must be healthy without a break before the
	// next stage begins, from 0s to 168h. Default 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="minSuccessTime must be a duration from 0s to 168h, such as 10m"
	MinSuccessTime *metav1.Duration `json:"minSuccessTime,omitempty"`
	// ProgressDeadline is within which time a cluster of the stage must be healthy after its change, from 10s
	// to 168h. After that it counts as failed until it is healthy. Absent: only clusters that report a failure fail.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="progressDeadline must be a duration from 10s to 168h, such as 10m"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
	// OnFailure of more clusters than maxFailures, or of a gate. Pause (default) holds the rollout. Rollback returns the
	// clusters that have changed to their earlier revision, the last stage first. Continue goes on without the failed
	// clusters, and as if the gate had passed.
	// +optional
	// +kubebuilder:validation:Enum=Pause;Rollback;Continue
	OnFailure FailureAction `json:"onFailure,omitempty"`
	// GatesBefore hold each stage but the first until all of them hold at one time, after the earlier stages are done.
	// A stage without clusters has none.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	GatesBefore []RolloutGate `json:"gatesBefore,omitempty"`
}

// AutoStagePrefix begins the names of the stages of autoStages. No stated stage has such a name.
const AutoStagePrefix = "auto "

// allClusters is the size of the last stage of autoStages.
const allClusters = "100%"

// AutoStageSizes returns the sizes of the automatic stages, the last one of all clusters included; none where autoStages are not
// stated.
func (r *Rollout) AutoStageSizes() []intstr.IntOrString {
	if len(r.AutoStages) == 0 || r.AutoStages[len(r.AutoStages)-1].StrVal == allClusters {
		return r.AutoStages
	}
	return append(slices.Clone(r.AutoStages), intstr.FromString(allClusters))
}

// ListStages returns the stages that are stated, or those of autoStages, which choose no cluster.
func (r *Rollout) ListStages() []RolloutStage {
	if len(r.AutoStages) == 0 {
		return r.Stages
	}
	var all AutoStageOptions
	if r.AutoStageOptions != nil {
		all = *r.AutoStageOptions
	}
	var out []RolloutStage
	for i, size := range r.AutoStageSizes() {
		s := RolloutStage{
			Name: AutoStagePrefix + size.String(), MaxConcurrency: all.MaxConcurrency, MaxFailures: all.MaxFailures,
			MinSuccessTime: all.MinSuccessTime, ProgressDeadline: all.ProgressDeadline, OnFailure: all.OnFailure,
		}
		if i > 0 {
			s.GatesBefore = all.GatesBefore
		}
		out = append(out, s)
	}
	return out
}

// FailureAction is what follows when a stage has more failures than it may have.
type FailureAction string

// The failure actions.
const (
	FailurePause    FailureAction = "Pause"
	FailureRollback FailureAction = "Rollback"
	FailureContinue FailureAction = "Continue"
)

// RolloutGate is a condition of the next stage. It has exactly one of wait, approval, cel, prometheus and webhook. Its
// verdict is kept in status.rollout.gates. It decides again for another revision, and when it is edited.
//
// +kubebuilder:validation:XValidation:rule="(has(self.wait) ? 1 : 0) + (has(self.approval) ? 1 : 0) + (has(self.cel) ? 1 : 0) + (has(self.prometheus) ? 1 : 0) + (has(self.webhook) ? 1 : 0) == 1",message="give exactly one of wait, approval, cel, prometheus and webhook"
type RolloutGate struct {
	// Name of the gate, one in its stage.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Wait is how long the earlier stages are done without a break, up to 720h.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('720h')",message="wait must be a duration above 0s and up to 720h, such as 10m"
	Wait *metav1.Duration `json:"wait,omitempty"`
	// Approval by people with the right to approve the Bundle.
	// +optional
	Approval *ApprovalGate `json:"approval,omitempty"`
	// CEL is an expression over counts of clusters: stage, earlier and all, each with clusters, updated,
	// changing, failed, waiting, disconnected and suspended. A group that the expression reads and
	// that has no connected cluster does not hold.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	CEL string `json:"cel,omitempty"`
	// Prometheus queries a server of Prometheus' HTTP API until enough results are a success.
	// +optional
	Prometheus *PrometheusGate `json:"prometheus,omitempty"`
	// Webhook requests a verdict of a service, by signed requests, until one comes.
	// +optional
	Webhook *WebhookGate `json:"webhook,omitempty"`
}

// ApprovalGate holds when enough people have approved the revision for the stage.
type ApprovalGate struct {
	// Approvers is how many different users must approve. With 2, one of them is not the author of the
	// change. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Approvers int32 `json:"approvers,omitempty"`
	// ValidFor is how long an approval counts that the stage has not used, from 1m to 720h. Absent: always.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('720h')",message="validFor must be a duration from 1m to 720h, such as 24h"
	ValidFor *metav1.Duration `json:"validFor,omitempty"`
}

// NeededApprovers returns how many different users must approve.
func (a *ApprovalGate) NeededApprovers() int { return max(1, int(a.Approvers)) }

// ListApprovers lists the users with a valid approval of a revision for a stage, sorted. It returns when the list
// changes next by time alone; zero is never.
func (a *ApprovalGate) ListApprovers(stage, revision string, approvals []RolloutApproval, now time.Time) (by []string, changesAt time.Time) {
	for _, one := range approvals {
		if one.Revision != revision || one.Stage != stage || one.By == "" || one.At.IsZero() {
			continue
		}
		next := one.At.Time // the clock of another hub may be ahead
		if !next.After(now) {
			next = time.Time{}
			if a.ValidFor != nil {
				if next = one.At.Add(a.ValidFor.Duration); !next.After(now) {
					continue
				}
			}
			by = append(by, one.By)
		}
		if !next.IsZero() && (changesAt.IsZero() || next.Before(changesAt)) {
			changesAt = next
		}
	}
	slices.Sort(by)
	return slices.Compact(by), changesAt
}

// RolloutApproval is the approval of one revision for one stage by one user.
type RolloutApproval struct {
	// Stage that may begin, or that the gate is after.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage"`
	// Revision that is approved, as in status.revision. An approval of another revision has no effect.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// By is the user that approved. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// At is when the user approved. The hub sets it.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// GateStatus is what a gate decided.
type GateStatus struct {
	// Stage of the gate.
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage"`
	// Name of the gate.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Revision for which it decided.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// Hash of the gate as it was stated.
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// State: Waiting does not hold. Satisfied holds, and waits for the other gates. Passed: all of them held
	// at one time, and the stage may begin. Failed: the gate measured more failures than it allows, and does not decide
	// again before a person resumes.
	// +kubebuilder:validation:Enum=Waiting;Satisfied;Passed;Failed
	State GateState `json:"state"`
	// Since is when the gate was first judged, or when it passed or failed.
	Since metav1.Time `json:"since"`
	// Value is what the gate saw.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value,omitempty"`
	// NoDataSince is since when a gate that measures has no data, for the reason in value. It is absent while data comes.
	// +optional
	NoDataSince *metav1.Time `json:"noDataSince,omitempty"`
}

// GateState is what a gate decided.
type GateState string

// The states of gates.
const (
	GateWaiting   GateState = "Waiting"
	GateSatisfied GateState = "Satisfied"
	GatePassed    GateState = "Passed"
	GateFailed    GateState = "Failed"
)

// StageClusters chooses the clusters of a stage, by one of its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.labelSelector)",message="give names or labelSelector, and not both"
type StageClusters struct {
	// Names of clusters.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Names []string `json:"names,omitempty"`
	// LabelSelector over the Clusters' labels. The last stage may have an empty one: it has the clusters
	// that are in no other stage.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// RolloutPause stops a Bundle's rollout. A person writes it, and Atoll keeps it.
type RolloutPause struct {
	// Reason in one CamelCase word.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// By is the user that paused, or that last edited the pause. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// Since is when the pause began. The hub sets it.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// RolloutResume is the last time that a person resumed a Bundle's rollout.
type RolloutResume struct {
	// By is the user that resumed. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// At is the time. Failures of clusters that changed before it hold no stage. The hub sets it.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// FreezeExemption lets a Bundle change in a freeze.
type FreezeExemption struct {
	// Message for people: the emergency.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message"`
	// By is the user that exempted the Bundle. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// At is the time. The hub sets it. A freeze that began more than 10 minutes after it holds the Bundle again.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// RolloutStatus is the progress of a Bundle's rollout.
type RolloutStatus struct {
	// Stages in their order, the one of the other clusters last.
	// +optional
	// +kubebuilder:validation:MaxItems=33
	// +listType=map
	// +listMapKey=name
	Stages []StageStatus `json:"stages,omitempty"`
	// CurrentStage is the stage that changes, or that holds the rollout. Empty: the rollout is complete.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CurrentStage string `json:"currentStage,omitempty"`
	// Reason for which clusters wait, in the words of docs/reasons.md. Empty: no cluster waits for its turn.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Actor is the person or component that must act before the wait ends.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Actor string `json:"actor,omitempty"`
	// Message describes the wait.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Since is when the reason began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// PausedBy is the user that paused the rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PausedBy string `json:"pausedBy,omitempty"`
	// PausedSince is when the user paused the rollout.
	// +optional
	PausedSince *metav1.Time `json:"pausedSince,omitempty"`
	// Gates that were judged for the revision, in the order of the stages.
	// +optional
	// +kubebuilder:validation:MaxItems=512
	// +listType=map
	// +listMapKey=stage
	// +listMapKey=name
	Gates []GateStatus `json:"gates,omitempty"`
	// Rollback is the last rollback of a revision.
	// +optional
	Rollback *RollbackStatus `json:"rollback,omitempty"`
	// StageCut is which clusters are in the stages of autoStages.
	// +optional
	StageCut *StageCut `json:"stageCut,omitempty"`
}

// GetStageCut returns the division into automatic stages; nil: there is none.
func (s *RolloutStatus) GetStageCut() *StageCut {
	if s == nil {
		return nil
	}
	return s.StageCut
}

// StageCut divides the clusters into the stages of autoStages, by a hash of the names of the Bundle and of the
// cluster. It is made when the rollout of a revision begins, and again when a stage gets more clusters than its size.
type StageCut struct {
	// Revision for whose rollout it was made.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// At is when it was made. A Cluster that was created later is in the last stage.
	At metav1.Time `json:"at"`
	// Hash of autoStages as they were stated.
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`
	// Thresholds of the stages but the last. A cluster is in the first stage whose threshold is above its hash.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Thresholds []int64 `json:"thresholds,omitempty"`
}

// RollbackStatus is the rollback of a revision, and the failure that caused it.
type RollbackStatus struct {
	// Revision that failed.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// PreviousRevision is what the failed cluster held before, or the first cluster that can return.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PreviousRevision string `json:"previousRevision,omitempty"`
	// Stage that had more failures than maxFailures, or a gate that failed.
	// +kubebuilder:validation:MaxLength=63
	Stage string `json:"stage"`
	// Gate of the stage that failed. Absent: clusters failed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Gate string `json:"gate,omitempty"`
	// Cluster that failed, the first by name. Empty: a gate failed.
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster"`
	// Reason of its failure, in the words of docs/reasons.md.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// State: RollingBack returns clusters. RolledBack: no connected cluster is left to return.
	// +kubebuilder:validation:Enum=RollingBack;RolledBack
	State RollbackState `json:"state"`
	// Since is when the state began.
	Since metav1.Time `json:"since"`
	// Message names clusters that cannot return.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// RollbackState is how far a rollback is.
type RollbackState string

// The states of rollbacks.
const (
	RollingBack RollbackState = "RollingBack"
	RolledBack  RollbackState = "RolledBack"
)

// StageStatus counts the clusters of a stage. Disconnected clusters are only in Disconnected.
type StageStatus struct {
	// Name of the stage.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Clusters that are connected.
	Clusters int32 `json:"clusters"`
	// Updated clusters have the desired revision, and are healthy.
	Updated int32 `json:"updated"`
	// Changing clusters have the desired revision, and are not healthy yet.
	Changing int32 `json:"changing"`
	// Failed clusters have the desired revision, and could not apply it or are unhealthy.
	Failed int32 `json:"failed"`
	// Waiting clusters keep their earlier revision.
	Waiting int32 `json:"waiting"`
	// Disconnected clusters are outside all bounds, and catch up when they return.
	Disconnected int32 `json:"disconnected"`
	// Suspended clusters are named by spec.suspension and wait. They are outside all bounds, and catch up after the suspension.
	// +optional
	Suspended int32 `json:"suspended,omitempty"`
}
