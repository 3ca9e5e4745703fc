package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SourceCommitStatus is what the hub reported to the git server of a Source.
type SourceCommitStatus struct {
	// Commit of the last report that the server took.
	// +optional
	Commit string `json:"commit,omitempty"`
	// State of the last report that the server took. Pending: the commit is applied, and not ready in all clusters. Success: it is. Failure: it is
	// refused, or not applied.
	// +optional
	State CommitState `json:"state,omitempty"`
	// Time of the last report that the server took.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// Problem is why the server has not taken the present report. The hub tries again.
	// +optional
	Problem string `json:"problem,omitempty"`
	// ProblemSince is when the problem began.
	// +optional
	ProblemSince *metav1.Time `json:"problemSince,omitempty"`
}

// CommitState is the state of a commit at a git server.
// +kubebuilder:validation:Enum=Pending;Success;Failure
type CommitState string

// The states of commits.
const (
	CommitPending CommitState = "Pending"
	CommitSuccess CommitState = "Success"
	CommitFailure CommitState = "Failure"
)
