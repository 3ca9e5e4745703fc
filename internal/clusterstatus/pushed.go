package clusterstatus

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Pushed is how the agent fares that the hub runs for a member.
type Pushed struct {
	// OK: the agent works, or stands by for another one that does.
	OK bool
	// Reason is a CamelCase word, Message the text for people, with what they may do. Without a
	// Reason there is certainly no such agent, and no report.
	Reason  atoll.Reason
	Message string
}

// SetPushAgentState records the state of the push agent that this hub runs for the member; nil
// means that this hub no longer reports it.
func (r *ClusterStatusReconciler) SetPushAgentState(uid string, p *Pushed) {
	r.mu.Lock()
	if _, known := r.o.Clusters.GetByUID(uid); !known {
		r.mu.Unlock() // gone; nothing is kept of it
		return
	}
	r.ensureMember(uid).pushed = p
	r.mu.Unlock()
	r.enqueueClusters(uid)
}

// pushedCondition returns the condition Pushed; nil: there is none. Another hub may have reported
// a state that this hub does not have.
func pushedCondition(c *v1alpha1.Cluster, f memberFacts) *metav1.Condition {
	switch {
	case f.pushed == nil:
		return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed)
	case f.pushed.Reason == "":
		return nil
	}
	status := metav1.ConditionFalse
	if f.pushed.OK {
		status = metav1.ConditionTrue
	}
	return &metav1.Condition{Status: status, Reason: string(f.pushed.Reason), Message: f.pushed.Message}
}

// isPushAgentBlocked reports whether something keeps the hub's own agent of the member.
func isPushAgentBlocked(c *v1alpha1.Cluster, f memberFacts) bool {
	cond := pushedCondition(c, f)
	return c.Spec.IsPushed() && cond != nil && cond.Status == metav1.ConditionFalse
}
