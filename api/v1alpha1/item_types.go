package v1alpha1

// ItemRule specifies how members treat objects that a policy places.
//
// +kubebuilder:validation:XValidation:rule="has(self.update) || has(self.ignoreFields) || has(self.drift) || has(self.conflictResolution) || has(self.removal) || has(self.serviceAccount) || has(self.feedback) || has(self.health) || has(self.completion) || has(self.ttlSecondsAfterFinished)",message="a rule sets at least one of update, ignoreFields, drift, conflictResolution, removal, serviceAccount, feedback, health, completion and ttlSecondsAfterFinished"
type ItemRule struct {
	// ResourceSelectors select objects among those that the policy places, with their dependencies.
	// Empty: all of them.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`
	// Update specifies what members do with an object after they created it. Apply corrects every field
	// that the template states, and sends each edit of the template. CreateOnly leaves the object to
	// the member: neither edits of the template nor overrides reach it any more, and what changes it
	// there is not corrected. ReadOnly writes nothing: the member's object, which something else owns,
	// is read for its health and status alone. Recreate is Apply where the member accepts the edit. An
	// edit of a field that cannot change there deletes the object and creates it again; namespaces,
	// CustomResourceDefinitions, volumes and claims of them are never deleted for an edit. Without Update in any rule: Apply.
	// +optional
	// +kubebuilder:validation:Enum=Apply;CreateOnly;ReadOnly;Recreate
	Update UpdateMode `json:"update,omitempty"`
	// IgnoreFields are JSON Pointers of fields that belong to the member, such as "/spec/replicas".
	// A new object starts with the value of the template. From then on the member's value stays,
	// and neither edits nor overrides of the field reach the object. A pointer to an element of a
	// list leads on to a field of it, and the list must be one that Kubernetes merges by a key.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=set
	IgnoreFields []string `json:"ignoreFields,omitempty"`
	// Drift specifies what members do where an object differs from what Atoll would apply. Correct applies
	// it. Report writes nothing, neither a new object nor an edit of the template, and reports the
	// fields that differ and objects that are missing. Approve is as Report until a person approves what
	// a member reports, by `atoll drift correct`. The member then applies the object once, if the reported
	// differences are still the same. Without Drift in any rule: Correct.
	// +optional
	// +kubebuilder:validation:Enum=Correct;Report;Approve
	Drift DriftMode `json:"drift,omitempty"`
	// ConflictResolution specifies what happens in a member where an object of the same name exists that
	// Atoll did not create. It replaces conflictResolution of the policy.
	// +optional
	// +kubebuilder:validation:Enum=Abort;AdoptIfSame;Overwrite
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`
	// Removal specifies what happens to the object in a member when it is taken out there. It replaces
	// removal.mode of the policy. Confirm deletes as Delete does, once a person has confirmed the
	// removal with `atoll confirm`, whatever the removal budget allows. Last deletes as Delete does, after all other
	// objects of its Bundle are gone that the member removes at that time. WithBundle deletes the object only where its
	// Bundle, or the Bundle's namespace, is deleted. It keeps the object as Orphan does where the template is deleted, the
	// Bundle leaves the member, or an override excludes the object.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Orphan;Confirm;Last;WithBundle
	Removal RemovalMode `json:"removal,omitempty"`
	// ServiceAccount of the member that must have the right to each write of the object there: NAME, in the
	// namespace of the object, or NAMESPACE/NAME. The agent requests an access review of the member's API
	// before each write, and writes only what both the ServiceAccount and the agent may write. The annotation atoll.dev/service-account of the
	// object's Namespace comes first. Without either, the rights of the agent suffice.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// Feedback lists values of the member's object that the member reports. Secrets are left out: a rule that
	// selects the kind Secret states no feedback, and any other rule reports nothing of them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Feedback []FeedbackRule `json:"feedback,omitempty"`
	// Health replaces Atoll's own health rules of the object's kind. The object is healthy if all
	// expressions are true, and the first other one decides its health. An expression that cannot be evaluated
	// makes the health Unknown. An object that is being deleted, or whose controller has not observed its latest
	// generation, is Progressing whatever the expressions return. Secrets are left out as of feedback.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Health []HealthRule `json:"health,omitempty"`
	// Completion specifies when the object has run to completion, as a Job does. Until then a healthy object is
	// Progressing with the reason NotCompleted. An object that was deleted in the member after its completion is
	// not created again for the same content. Secrets are left out as of feedback.
	// +optional
	Completion *CompletionRule `json:"completion,omitempty"`
	// TTLSecondsAfterFinished is after how many seconds a member deletes the object once it has run to completion, by its
	// kind, such as a Job, or by completion. The time begins when the member's agent finds it finished. The object is not
	// created again for the same content, and its last report stays. Objects that Atoll adopted stay, and so do hooks and
	// objects that other Bundles hold, too. 0 deletes it at once. Without it in any rule: the object stays.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// MaxTTLSecondsAfterFinished is the longest time after which a finished object is deleted: a year.
const MaxTTLSecondsAfterFinished = 31_536_000

// FeedbackRule names a value of the member's object.
type FeedbackRule struct {
	// Name under which the value is reported.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	Name string `json:"name"`
	// JSONPath of the value in the object, such as ".status.readyReplicas" or
	// `.status.conditions[?(@.type=="Ready")].status`. It leads to one value. Recursive descent, lists of
	// names and ranges are refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	JSONPath string `json:"jsonPath"`
	// Type of the value. JSON is any value, also a list or an object. A value of another type is reported as
	// a problem. A value has at most 256 bytes, and one of the type JSON 1024.
	// +kubebuilder:validation:Enum=String;Integer;Number;Boolean;Quantity;JSON
	Type FeedbackType `json:"type"`
}

// FeedbackType is the type of a reported value.
type FeedbackType string

// The types of reported values.
const (
	FeedbackString   FeedbackType = "String"
	FeedbackInteger  FeedbackType = "Integer"
	FeedbackNumber   FeedbackType = "Number"
	FeedbackBoolean  FeedbackType = "Boolean"
	FeedbackQuantity FeedbackType = "Quantity"
	FeedbackJSON     FeedbackType = "JSON"
)

// HealthRule is a condition of the health of the member's object.
type HealthRule struct {
	// Expression in CEL over object, the member's object, such as "object.status.phase == 'Running'". It gives
	// true or false.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression"`
	// Message for people where the expression is false. Default: the expression.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// Reason where the expression is false. Default: HealthRuleUnmet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Reason string `json:"reason,omitempty"`
	// WhenFalse is the health where the expression is false: Progressing, which can become healthy by itself,
	// or Degraded. Default: Progressing.
	// +optional
	// +kubebuilder:validation:Enum=Progressing;Degraded
	WhenFalse HealthWhenFalse `json:"whenFalse,omitempty"`
}

// HealthWhenFalse is the health of an object of which an expression is false.
type HealthWhenFalse string

// The healths of an object of which an expression is false.
const (
	WhenFalseProgressing HealthWhenFalse = "Progressing"
	WhenFalseDegraded    HealthWhenFalse = "Degraded"
)

// CompletionRule specifies when the member's object has run to completion.
type CompletionRule struct {
	// Expression in CEL over object, the member's object. It gives true or false.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression"`
}

// UpdateMode is what members do with an object that they created.
type UpdateMode string

// The update modes.
const (
	UpdateApply      UpdateMode = "Apply"
	UpdateCreateOnly UpdateMode = "CreateOnly"
	UpdateReadOnly   UpdateMode = "ReadOnly"
	UpdateRecreate   UpdateMode = "Recreate"
)

// DriftMode is what members do where an object differs from what Atoll would apply.
type DriftMode string

// The drift modes.
const (
	DriftCorrect DriftMode = "Correct"
	DriftReport  DriftMode = "Report"
	DriftApprove DriftMode = "Approve"
)
