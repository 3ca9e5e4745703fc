package v1alpha1

// ItemRule says how members treat objects that a policy places.
//
// +kubebuilder:validation:XValidation:rule="has(self.update) || has(self.ignoreFields) || has(self.drift) || has(self.conflictResolution) || has(self.removal) || has(self.serviceAccount)",message="a rule says something of update, ignoreFields, drift, conflictResolution, removal or serviceAccount"
type ItemRule struct {
	// ResourceSelectors select objects among those that the policy places, with their dependencies.
	// Empty: all of them.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`
	// Update says what members do with an object after they created it. Apply corrects every field
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
	// Drift says what members do where an object differs from what Atoll would apply. Correct applies
	// it. Report writes nothing, neither a new object nor an edit of the template, and reports the
	// fields that differ and objects that are missing. Approve is as Report until a person approves what
	// a member reports, by `atoll drift correct`. The member then applies the object once, if the reported
	// differences are still the same. Without Drift in any rule: Correct.
	// +optional
	// +kubebuilder:validation:Enum=Correct;Report;Approve
	Drift DriftMode `json:"drift,omitempty"`
	// ConflictResolution says what happens in a member where an object of the same name exists that
	// Atoll did not create. It replaces conflictResolution of the policy.
	// +optional
	// +kubebuilder:validation:Enum=Abort;AdoptIfSame;Overwrite
	ConflictResolution ConflictResolution `json:"conflictResolution,omitempty"`
	// Removal says what happens to the object in a member when it is taken out there. It replaces
	// removal.mode of the policy. Confirm deletes as Delete does, once a person has confirmed the
	// removal with `atoll confirm`, whatever the removal budget allows.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Orphan;Confirm
	Removal RemovalMode `json:"removal,omitempty"`
	// ServiceAccount of the member that must have the right to each write of the object there: NAME, in the
	// namespace of the object, or NAMESPACE/NAME. The agent asks the member's API before each write, and writes
	// only what both the ServiceAccount and the agent may write. The annotation atoll.dev/service-account of the
	// object's Namespace comes first. Without either, the rights of the agent suffice.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	ServiceAccount string `json:"serviceAccount,omitempty"`
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
