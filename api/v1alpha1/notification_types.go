package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Notification sends messages about events of its namespace to one target, once for each event.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ntf,path=notifications,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Delivered",type=string,JSONPath=`.status.conditions[?(@.type=="Delivered")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Delivered")].reason`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Last sent",type=date,JSONPath=`.status.lastSentTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Notification struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NotificationSpec   `json:"spec"`
	Status NotificationStatus `json:"status,omitempty"`
}

// NotificationSpec is what people state of a Notification.
type NotificationSpec struct {
	// Target is the service that gets the messages.
	Target NotificationTarget `json:"target"`
	// Events that are sent. Events of Clusters, and of ClusterBundles, are for Notifications in the namespace atoll-system.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=set
	Events []NotificationEvent `json:"events"`
	// Objects narrows the Sources, Bundles and Clusters. Default: all of the namespace.
	// +optional
	Objects *NotificationObjects `json:"objects,omitempty"`
	// Template of the text, in place of the default one: text with fields such as {{.Name}}, and with if, else, eq, ne, and, or and not.
	// docs/notifications.md lists the fields.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Template string `json:"template,omitempty"`
	// TestRequest sends one message of a test. Set it to the present time, as `atoll notify test` does.
	// +optional
	TestRequest *metav1.Time `json:"testRequest,omitempty"`
	// Suspend stops all messages. Events of that time are not sent later.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// NotificationEvent is a kind of events that are sent.
// +kubebuilder:validation:Enum=SourceFailed;SourceApplied;SourceDrifted;SourceInSync;BundleDegraded;BundleRecovered;BundleWaits;RolloutPaused;RolloutResumed;RolloutWaitsForApproval;RolloutFailed;RolloutCompleted;RemovalWaitsForConfirmation;ClusterWaitsForAcceptance;ClusterDisconnected;ClusterNotReady;ClusterReady;ClusterRemovalWaitsForConfirmation
type NotificationEvent string

// The kinds of events.
const (
	EventSourceFailed              NotificationEvent = "SourceFailed"
	EventSourceApplied             NotificationEvent = "SourceApplied"
	EventSourceDrifted             NotificationEvent = "SourceDrifted"
	EventSourceInSync              NotificationEvent = "SourceInSync"
	EventBundleDegraded            NotificationEvent = "BundleDegraded"
	EventBundleRecovered           NotificationEvent = "BundleRecovered"
	EventBundleWaits               NotificationEvent = "BundleWaits"
	EventRolloutPaused             NotificationEvent = "RolloutPaused"
	EventRolloutResumed            NotificationEvent = "RolloutResumed"
	EventRolloutWaitsForApproval   NotificationEvent = "RolloutWaitsForApproval"
	EventRolloutFailed             NotificationEvent = "RolloutFailed"
	EventRolloutCompleted          NotificationEvent = "RolloutCompleted"
	EventRemovalWaits              NotificationEvent = "RemovalWaitsForConfirmation"
	EventClusterWaitsForAcceptance NotificationEvent = "ClusterWaitsForAcceptance"
	EventClusterDisconnected       NotificationEvent = "ClusterDisconnected"
	EventClusterNotReady           NotificationEvent = "ClusterNotReady"
	EventClusterReady              NotificationEvent = "ClusterReady"
	EventClusterRemovalWaits       NotificationEvent = "ClusterRemovalWaitsForConfirmation"
)

// NotificationObjects selects objects. An object must meet both fields.
//
// +kubebuilder:validation:MinProperties=1
type NotificationObjects struct {
	// Names of objects, in which * stands for any characters.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Names []string `json:"names,omitempty"`
	// LabelSelector over the labels of the objects themselves.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// NotificationTarget is a service that gets messages, by one of its fields.
//
// +kubebuilder:validation:XValidation:rule="[has(self.slack), has(self.teams), has(self.webhook), has(self.email)].filter(x, x).size() == 1",message="give one of slack, teams, webhook and email"
type NotificationTarget struct {
	// Slack is an incoming webhook of Slack, or of a server that takes the same, such as Mattermost.
	// +optional
	Slack *ChatTarget `json:"slack,omitempty"`
	// Teams is a workflow of Microsoft Teams that is triggered by a webhook request.
	// +optional
	Teams *ChatTarget `json:"teams,omitempty"`
	// Webhook is a service that takes CloudEvents.
	// +optional
	Webhook *WebhookTarget `json:"webhook,omitempty"`
	// Email is a server of mail, with the addresses.
	// +optional
	Email *EmailTarget `json:"email,omitempty"`
}

// ChatTarget is a channel of a chat, by a URL that is a secret itself.
type ChatTarget struct {
	// SecretRef names a Secret of the namespace with the key url, an https:// URL, and optionally ca.crt. The writer needs the right to
	// get the Secret.
	SecretRef NotificationSecretRef `json:"secretRef"`
}

// WebhookTarget is a service that takes CloudEvents 1.0 in JSON, as structured content. Requests are signed as Standard Webhooks
// specify.
type WebhookTarget struct {
	// URL of the service, without credentials.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https://[^/?#@\s]+[^#@\s]*$`
	URL string `json:"url"`
	// SecretRef names a Secret of the namespace with the key hmac, of at least 16 bytes, by which requests are signed, and optionally
	// ca.crt. The writer needs the right to get the Secret.
	SecretRef NotificationSecretRef `json:"secretRef"`
}

// EmailTarget is a server of mail that is reached by SMTP over TLS.
type EmailTarget struct {
	// Host of the server.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// Port of the server. Default: 587, and 465 with tls: TLS.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// TLS is how the connection is encrypted: StartTLS, by the command of SMTP, or TLS, from the first byte. Default StartTLS.
	// Nothing is sent without encryption.
	// +optional
	TLS EmailTLS `json:"tls,omitempty"`
	// From is the address of the sender.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=254
	From string `json:"from"`
	// To are the addresses of the recipients. Each recipient sees all of them.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=254
	// +listType=set
	To []string `json:"to"`
	// SecretRef names a Secret of the namespace with the keys username and password, or ca.crt, or all three. Default: the hub does not
	// log in. The writer needs the right to get the Secret.
	// +optional
	SecretRef *NotificationSecretRef `json:"secretRef,omitempty"`
}

// EmailTLS is how a connection to a server of mail is encrypted.
// +kubebuilder:validation:Enum=StartTLS;TLS
type EmailTLS string

// The ways to encrypt a connection to a server of mail.
const (
	EmailStartTLS EmailTLS = "StartTLS"
	EmailOverTLS  EmailTLS = "TLS"
)

// GetPort returns the port of the server.
func (e *EmailTarget) GetPort() int32 {
	switch {
	case e.Port != 0:
		return e.Port
	case e.TLS == EmailOverTLS:
		return 465
	}
	return 587
}

// NotificationSecretRef names a Secret of the Notification's namespace.
type NotificationSecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GetSecretName returns the Secret that a target names; empty: it names none.
func (t *NotificationTarget) GetSecretName() string {
	switch {
	case t.Slack != nil:
		return t.Slack.SecretRef.Name
	case t.Teams != nil:
		return t.Teams.SecretRef.Name
	case t.Webhook != nil:
		return t.Webhook.SecretRef.Name
	case t.Email != nil && t.Email.SecretRef != nil:
		return t.Email.SecretRef.Name
	}
	return ""
}

// TypeName returns the type of the target as people write it.
func (t *NotificationTarget) TypeName() string {
	switch {
	case t.Slack != nil:
		return "Slack"
	case t.Teams != nil:
		return "Teams"
	case t.Webhook != nil:
		return "Webhook"
	case t.Email != nil:
		return "Email"
	}
	return ""
}

// Condition types of a Notification.
const (
	// NotificationDelivered is false while a message was not taken by the target, or is not sent for another reason.
	NotificationDelivered = "Delivered"
)

// NotificationStatus is the observed state of a Notification.
type NotificationStatus struct {
	// ObservedGeneration of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Target is the type of the target: Slack, Teams, Webhook or Email.
	// +optional
	Target string `json:"target,omitempty"`
	// LastSentTime is when the target took a message last.
	// +optional
	LastSentTime *metav1.Time `json:"lastSentTime,omitempty"`
	// Sent counts the events that the target took.
	// +optional
	Sent int64 `json:"sent,omitempty"`
	// Dropped counts the events that were given up: too many waited, they waited too long, or the target refused them.
	// +optional
	Dropped int64 `json:"dropped,omitempty"`
	// Waiting counts the events that wait for the target, or for their turn, since the last write of the status.
	// +optional
	Waiting int32 `json:"waiting,omitempty"`
	// Failure is why the target did not take the present message. The hub tries again.
	// +optional
	Failure *NotificationFailure `json:"failure,omitempty"`
	// TestRequest that was honoured last.
	// +optional
	TestRequest *metav1.Time `json:"testRequest,omitempty"`
	// Interest is a digest of what of the spec decides which events are sent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Interest string `json:"interest,omitempty"`
	// HandledBefore is the time up to which a hub that starts sends no event that is not in unsent.
	// +optional
	HandledBefore *metav1.Time `json:"handledBefore,omitempty"`
	// Handled are the last events that were sent or dropped, so that none is sent again.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Handled []HandledEvent `json:"handled,omitempty"`
	// Unsent are the last events that wait for a target that fails, so that a hub that starts sends them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Unsent []UnsentEvent `json:"unsent,omitempty"`
	// Conditions: Delivered.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NotificationFailure is why a target did not take a message.
type NotificationFailure struct {
	// Reason in the words of docs/reasons.md.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// Code of the answer: the status of HTTP, or the reply code of SMTP. Absent: there was no answer.
	// +optional
	Code int32 `json:"code,omitempty"`
	// Message for people. No text of the target is in it.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// Since is when the failure began.
	Since metav1.Time `json:"since"`
}

// HandledEvent is an event that was sent or dropped.
type HandledEvent struct {
	// ID of the event.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Event is the kind of the event.
	// +kubebuilder:validation:MaxLength=64
	Event string `json:"event"`
	// UID of the object.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// Time at which the event began.
	Time metav1.Time `json:"time"`
}

// UnsentEvent is an event that waits for its target.
type UnsentEvent struct {
	HandledEvent `json:",inline"`
	// Kind of the object.
	// +kubebuilder:validation:MaxLength=64
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Reason of the event.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Message of the event.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// Ends is the ID of the event that this one ends, such as the failure of a Source that is mended.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Ends string `json:"ends,omitempty"`
}

// NotificationList is a list of Notifications.
//
// +kubebuilder:object:root=true
type NotificationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Notification `json:"items"`
}
