package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// DisruptionBudget bounds which copies of a Bundle voluntary disruptions may take at one time: a PodDisruptionBudget over clusters. A
// copy is what one cluster has of the Bundle. It is available while its cluster is connected and reports all objects applied and healthy. Voluntary
// are drains, moves, rebalances, evictions by taints, removals of clusters, and changes of a healthy copy by a rollout. Deletions by
// users, and an edit of the placement that only takes clusters out, do not wait.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxUnavailable) != has(self.minAvailable)",message="give exactly one of maxUnavailable and minAvailable"
type DisruptionBudget struct {
	// MaxUnavailable is how many copies may be unavailable when a voluntary disruption takes one: a number, or a percentage of the
	// connected clusters, rounded up. Copies that are unavailable for other reasons count. Disconnected clusters are outside. 0 lets a copy go only
	// after another one has replaced it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MinAvailable is how many copies must stay available: a number, or a percentage of the connected clusters, rounded up. A copy in a
	// disconnected cluster is not counted, although it may run.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
	// PodDisruptionBudgets: Honor also keeps a copy in its cluster while a PodDisruptionBudget of the Bundle reports there that it
	// allows no disruption. Ignore does not. Absent: Honor.
	// +optional
	// +kubebuilder:validation:Enum=Honor;Ignore
	PodDisruptionBudgets PodDisruptionBudgetMode `json:"podDisruptionBudgets,omitempty"`
}

// PodDisruptionBudgetMode is whether PodDisruptionBudgets of members keep a copy.
type PodDisruptionBudgetMode string

// The modes.
const (
	PodDisruptionBudgetsHonor  PodDisruptionBudgetMode = "Honor"
	PodDisruptionBudgetsIgnore PodDisruptionBudgetMode = "Ignore"
)

// HonorsPodDisruptionBudgets reports whether a PodDisruptionBudget of a member may keep a copy in it.
func (b *DisruptionBudget) HonorsPodDisruptionBudgets() bool {
	return b != nil && b.PodDisruptionBudgets != PodDisruptionBudgetsIgnore
}

// RequiredOf returns how many copies must stay available of so many that are expected. A bound that cannot be read, which admission
// refuses, keeps all.
func (b *DisruptionBudget) RequiredOf(expected int) int {
	bound, isMost := b.MinAvailable, false
	if bound == nil {
		bound, isMost = b.MaxUnavailable, true
	}
	if bound == nil {
		return expected
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(bound, expected, true)
	switch {
	case err != nil:
		return expected
	case isMost:
		return max(0, expected-n)
	}
	return n
}

// LetsNoneGo reports whether the budget lets none of so many copies go even while all are available.
func (b *DisruptionBudget) LetsNoneGo(copies int) bool {
	return b != nil && copies > 0 && copies-b.RequiredOf(copies) < 1
}

// String returns the bound as it is stated, such as "minAvailable 2".
func (b *DisruptionBudget) String() string {
	switch {
	case b.MinAvailable != nil:
		return "minAvailable " + b.MinAvailable.String()
	case b.MaxUnavailable != nil:
		return "maxUnavailable " + b.MaxUnavailable.String()
	}
	return "no bound"
}
