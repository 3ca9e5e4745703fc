package loss

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// MemberOf returns what counts of a Cluster. A cluster that never joined, is not accepted, or leaves the fleet is no
// member. Silence that the hub does not hold for a loss leaves the condition Ready as it is.
func MemberOf(c *v1alpha1.Cluster) (m Member, isMember bool) {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	if !c.Spec.Accepted || c.DeletionTimestamp != nil || ready == nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined) {
		return Member{}, false
	}
	m = Member{zone: zoneOf(c), since: ready.LastTransitionTime.Time, checksIn: c.Spec.CheckInInterval() > 0}
	switch ready.Status {
	case metav1.ConditionUnknown:
		m.loss = unreachable
	case metav1.ConditionFalse:
		m.loss = notReady
	}
	m.taint = taintedLoss(c, m.loss)
	return m, true
}

// zoneOf returns the zone in which losses of the cluster count. Clusters with the same zones, in any order, are in one.
func zoneOf(c *v1alpha1.Cluster) string {
	if len(c.Spec.Zones) == 0 {
		return c.Spec.Zone
	}
	return strings.Join(slices.Sorted(slices.Values(c.Spec.Zones)), ",")
}

// taintedLoss returns the loss that a taint of the hub states, the present one before another; notLost: there is none.
func taintedLoss(c *v1alpha1.Cluster, present Loss) (found Loss) {
	for i := range c.Spec.Taints {
		t := &c.Spec.Taints[i]
		if !t.IsOfLoss() {
			continue
		}
		if t.Key == lossTaints[present] {
			return present
		}
		if found = unreachable; t.Key == v1alpha1.TaintNotReady {
			found = notReady
		}
	}
	return found
}

// IsTainted reports whether the Cluster has a taint of the hub.
func IsTainted(c *v1alpha1.Cluster) bool {
	return slices.ContainsFunc(c.Spec.Taints, v1alpha1.Taint.IsOfLoss)
}

// WithTaint returns a copy of the Cluster with the taint of a loss. It replaces a taint of another loss, and keeps the
// time of that one: the cluster is lost since then.
func WithTaint(c *v1alpha1.Cluster, why Loss, now time.Time) *v1alpha1.Cluster {
	out, added := WithoutTaint(c), &metav1.Time{Time: now}
	for _, t := range c.Spec.Taints {
		if t.IsOfLoss() && t.TimeAdded != nil {
			added = t.TimeAdded.DeepCopy()
		}
	}
	out.Spec.Taints = append(out.Spec.Taints, v1alpha1.Taint{Key: lossTaints[why], Effect: corev1.TaintEffectNoExecute, TimeAdded: added})
	return out
}

// WithoutTaint returns a copy of the Cluster without taints of the hub.
func WithoutTaint(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	out := c.DeepCopy()
	out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, v1alpha1.Taint.IsOfLoss)
	return out
}

// NextTaintTime returns when a lost Cluster is tainted, as far as no rate and no share of lost clusters delays it; false
// for one that is not lost or has the taint.
func NextTaintTime(c *v1alpha1.Cluster, s *v1alpha1.ClusterFailover) (at time.Time, isLost bool) {
	m, isMember := MemberOf(c)
	if s == nil || !isMember || m.loss == notLost || m.taint != notLost {
		return time.Time{}, false
	}
	return m.dueTime(TermsOf(s)), true
}

// TaintKey returns the key of the taint of a loss.
func (l Loss) TaintKey() string { return lossTaints[l] }

// Loss returns the loss of the member.
func (m Member) Loss() Loss { return m.loss }
