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
	// Reason is a CamelCase word, Message what a person is told, and may do.
	Reason, Message string
}

// Pushed tells how the agent fares that this hub runs for the member; nil: it runs none,
// and has nothing to say about it any more.
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

// pushed is the condition Pushed; nil: there is none to have. Of what this hub does not
// know, the last word stays.
func pushed(c *v1alpha1.Cluster, f facts) *metav1.Condition {
	if f.pushed != nil {
		status := metav1.ConditionFalse
		if f.pushed.OK {
			status = metav1.ConditionTrue
		}
		return &metav1.Condition{Status: status, Reason: f.pushed.Reason, Message: f.pushed.Message}
	}
	if !c.Spec.Pushed() {
		return nil
	}
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed)
}

// keptFromPushing tells whether something keeps the hub's own agent of the member.
func keptFromPushing(c *v1alpha1.Cluster, f facts) bool {
	cond := pushed(c, f)
	return c.Spec.Pushed() && cond != nil && cond.Status == metav1.ConditionFalse
}
