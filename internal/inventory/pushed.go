package inventory

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Pushed is how the agent fares that the hub runs for a member.
type Pushed struct {
	// OK: the agent works, or stands by for another one that does.
	OK bool
	// Reason is a CamelCase word, Message what a person is told, and may do. Without a
	// Reason there is surely no such agent, and nothing to say of it.
	Reason, Message string
}

// Pushed tells how the agent fares that this hub runs for the member; nil: that is not for
// this hub to say, or not any more, and the last word stays.
func (r *Reconciler) Pushed(uid string, p *Pushed) {
	r.mu.Lock()
	if _, known := r.o.Clusters.ByUID(uid); !known {
		r.mu.Unlock() // gone; nothing is kept of it
		return
	}
	r.member(uid).pushed = p
	r.mu.Unlock()
	r.enqueue(uid)
}

// pushed is the condition Pushed; nil: there is none to have. What this hub does not know
// another one may have said.
func pushed(c *v1alpha1.Cluster, f facts) *metav1.Condition {
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
	return &metav1.Condition{Status: status, Reason: f.pushed.Reason, Message: f.pushed.Message}
}

// keptFromPushing tells whether something keeps the hub's own agent of the member.
func keptFromPushing(c *v1alpha1.Cluster, f facts) bool {
	cond := pushed(c, f)
	return c.Spec.Pushed() && cond != nil && cond.Status == metav1.ConditionFalse
}
