package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Changes specifies when the agent carries out what the hub orders. While it does not, the agent creates, changes and deletes
// nothing of the hub's in this cluster, and corrects nothing. Workloads go on to run, and are reported. A change that has
// started goes on.
type Changes struct {
	// Hold lets no change start until it is taken out of the policy, or ends by itself.
	// +optional
	Hold *ChangeHold `json:"hold,omitempty"`
	// Windows are times at which changes may start, or may not. With an Allow window, changes start only while one is open.
	// While a Deny window is open, none starts.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []ChangeWindow `json:"windows,omitempty"`
}

// ChangeHold is an order of the administrator to change nothing now.
type ChangeHold struct {
	// Reason for people of the hub.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// Until is when the hold ends by itself, by the clock of the agent. Default: it does not.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// MaxHoldReason is the most characters of the reason of a hold.
const MaxHoldReason = 128

// ChangeWindow is a time that comes again, by a schedule.
type ChangeWindow struct {
	// Type: Allow lets changes start while the window is open. Deny lets none start then.
	Type ChangeWindowType `json:"type"`
	// Schedule of the starts in five fields of cron: minute, hour, day of the month, month and day of the week.
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
}

// ChangeWindowType is what an open window does.
//
// +kubebuilder:validation:Enum=Allow;Deny
type ChangeWindowType string

// The types of change windows.
const (
	ChangeWindowAllow ChangeWindowType = "Allow"
	ChangeWindowDeny  ChangeWindowType = "Deny"
)
