package clusterstatus

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// conditionSetter sets conditions of one Cluster.
type conditionSetter struct {
	cluster    *v1alpha1.Cluster
	conditions *[]metav1.Condition
	now        metav1.Time
}

func (s conditionSetter) set(kind string, status metav1.ConditionStatus, reason atoll.Reason, message string) {
	meta.SetStatusCondition(s.conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(reason), Message: phrase.EscapeLine(message),
		LastTransitionTime: s.now, ObservedGeneration: s.cluster.Generation,
	})
}

// resetConditionToNormal sets a condition to its normal value. A condition that is missing stays missing until the
// next write, so that an upgrade of the hub writes no Cluster.
func (s conditionSetter) resetConditionToNormal(kind string) {
	if meta.FindStatusCondition(*s.conditions, kind) != nil {
		s.setDefaultCondition(kind)
	}
}

func (s conditionSetter) setDefaultCondition(kind string) {
	c := defaultCondition(kind)
	s.set(kind, c.Status, atoll.Reason(c.Reason), c.Message)
}

// addMissingConditions adds each condition type that the status does not have yet.
func (s conditionSetter) addMissingConditions() {
	for _, is := range atoll.ConditionTypes["Cluster"] {
		if !is.Temporary && meta.FindStatusCondition(*s.conditions, is.Type) == nil {
			s.setDefaultCondition(is.Type)
		}
	}
}

// defaultCondition returns a condition for which nothing was reported. Messages would only make
// each Cluster of a large fleet longer, and the reasons have sentences.
func defaultCondition(kind string) metav1.Condition {
	isFalse := func(reason atoll.Reason) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: string(reason)}
	}
	switch kind {
	case v1alpha1.ClusterMisbehaving:
		return isFalse(atoll.ReasonWellBehaved)
	case v1alpha1.ClusterUnclaimed:
		return isFalse(atoll.ReasonNothingUnclaimed)
	case v1alpha1.ClusterCertificateExpiring:
		return isFalse(atoll.ReasonNoRenewalOverdue)
	}
	return atoll.UnknownCondition(kind)
}
