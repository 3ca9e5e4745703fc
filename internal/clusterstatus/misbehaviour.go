package clusterstatus

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// goodConductTime is how long an agent must send nothing wrong until an inventory ends the
// condition Misbehaving.
const goodConductTime = 10 * time.Minute

// misbehaviour is what an agent sent that no agent may send.
type misbehaviour struct {
	what string
	last time.Time
}

// RecordMisbehaviour records that the member's agent sent what no agent may send. The condition
// Misbehaving shows it from the first time on.
func (r *ClusterStatusReconciler) RecordMisbehaviour(uid, what string) {
	now := time.Now()
	r.mu.Lock()
	m := r.ensureMember(uid)
	changed := m.misbehaviour == nil || m.misbehaviour.what != what
	m.misbehaviour = &misbehaviour{what: what, last: now}
	r.mu.Unlock()
	if changed {
		r.enqueueClusters(uid)
	}
}

// setMisbehaving keeps, sets or ends the condition Misbehaving. A hub that has seen nothing wrong
// keeps what another hub, or an earlier run, wrote until an inventory comes after goodConductTime.
func (s conditionSetter) setMisbehaving(f memberFacts) {
	m, now := f.misbehaviour, s.now.Time
	if m != nil && now.Sub(m.last) < goodConductTime {
		s.set(v1alpha1.ClusterMisbehaving, metav1.ConditionTrue, atoll.ReasonMisbehaving,
			"the hub ended the agent's session: "+m.what+"; if the agent is not damaged, its key may have been stolen: see `atoll deny`")
		return
	}
	c := meta.FindStatusCondition(*s.conditions, v1alpha1.ClusterMisbehaving)
	if c != nil && (c.Status == metav1.ConditionFalse || f.fresh && now.Sub(c.LastTransitionTime.Time) >= goodConductTime) {
		s.resetConditionToNormal(v1alpha1.ClusterMisbehaving)
	}
}
