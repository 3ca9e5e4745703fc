package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SourceDrift specifies what happens when others change or delete an object on the hub that the Source applied.
type SourceDrift struct {
	// Mode: Report (default) reports the object in status.drift, and changes nothing. Correct applies the object again, as the
	// commit has it, at most once a minute. Ignore compares nothing.
	// +optional
	// +kubebuilder:default=Report
	Mode SourceDriftMode `json:"mode,omitempty"`
	// Allow are changes that are no drift, and that Correct leaves alone. A number of replicas that was set by the subresource
	// scale is always allowed.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Allow []AllowedDrift `json:"allow,omitempty"`
}

// SourceDriftMode specifies what happens when others change an object that a Source applied.
// +kubebuilder:validation:Enum=Report;Correct;Ignore
type SourceDriftMode string

// The treatments of objects that others changed.
const (
	SourceDriftReport  SourceDriftMode = "Report"
	SourceDriftCorrect SourceDriftMode = "Correct"
	SourceDriftIgnore  SourceDriftMode = "Ignore"
)

// AllowedDrift is changes of objects that are no drift: those at the paths, and those by the managers.
//
// +kubebuilder:validation:XValidation:rule="has(self.paths) || has(self.managers)",message="give paths, managers or both"
type AllowedDrift struct {
	// Kind of the objects. Default: all kinds.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Name of the object. Default: all names.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// Paths are JSON Pointers of fields, which stand for all below them, such as /spec/template/spec/containers/name=web/image.
	// An element of a list is named by its index, or as name=NAME.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Pattern=`^/`
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	Paths []string `json:"paths,omitempty"`
	// Managers are field managers, as metadata.managedFields names them.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	Managers []string `json:"managers,omitempty"`
}

// DriftMode returns what happens when others change an object that the Source applied.
func (s *SourceSpec) DriftMode() SourceDriftMode {
	if s.Drift == nil || s.Drift.Mode == "" {
		return SourceDriftReport
	}
	return s.Drift.Mode
}

// AllowedDrifts returns the changes that are no drift.
func (s *SourceSpec) AllowedDrifts() []AllowedDrift {
	if s.Drift == nil {
		return nil
	}
	return s.Drift.Allow
}

// ChangedObject is an object on the hub that others changed or deleted since the Source applied it.
type ChangedObject struct {
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// Deleted is true for an object that does not exist any more.
	// +optional
	Deleted bool `json:"deleted,omitempty"`
	// Fields that differ, the first 10, as JSON Pointers. An element of a list is named by its index, or as name=NAME.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	Fields []string `json:"fields,omitempty"`
	// Managers of these fields, the first 5.
	// +optional
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	Managers []string `json:"managers,omitempty"`
	// Since is when the hub found it.
	Since metav1.Time `json:"since"`
	// Message is why the object is not corrected, or not compared.
	// +optional
	Message string `json:"message,omitempty"`
}
