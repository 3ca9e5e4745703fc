package bundlestatus

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/quarantine"
)

// Quarantines reports which Revisions are set aside.
type Quarantines interface {
	// FindQuarantine returns the quarantine of a Revision of the Bundle, as long as it is shown.
	FindQuarantine(bundleUID, revision string) (quarantine.Quarantine, bool)
	// Subscribe calls fn for each quarantine that begins.
	Subscribe(fn func(bundle enginev1.BundleRef, q quarantine.Quarantine))
}

// findQuarantine returns the quarantine of a Revision that a row is to hold; nil: there is none.
// The Bundle is reconciled again when the quarantine is no longer shown.
func (r *BundleReconciler) findQuarantine(s *bundleSnapshot, m *bundleMemo, now time.Time) *quarantine.Quarantine {
	if r.Quarantines == nil {
		return nil
	}
	for _, row := range s.rows {
		if row.Spec.Phase == atoll.RowRemoving {
			continue
		}
		if q, ok := r.Quarantines.FindQuarantine(s.uid, row.Spec.Revision); ok {
			m.wakeAfter(q.ShownUntil().Sub(now))
			return &q
		}
	}
	return nil
}

// setQuarantinedCondition adds the condition Quarantined, or removes it when there is no quarantine.
func (t *rowTally) setQuarantinedCondition(st *v1alpha1.BundleStatus, in StatusInput) {
	if in.Quarantine == nil {
		meta.RemoveStatusCondition(&st.Conditions, v1alpha1.BundleQuarantined)
		return
	}
	t.setCondition(st, in, metav1.Condition{
		Type: v1alpha1.BundleQuarantined, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonQuarantined), Message: quarantineMessage(*in.Quarantine),
	})
}

// quarantineMessage returns what is set aside, since when, what it cost, and what ends it.
func quarantineMessage(q quarantine.Quarantine) string {
	return fmt.Sprintf("revision %s is not rendered since %s, because its Bundle cost %s; clusters keep what they have. "+
		"Removals of the Bundle from clusters go on, and removals of single objects wait with the revision. "+
		"Edit the templates, or the override rules that apply to them, or delete the Bundle's templates. The hub tries the revision again at %s",
		q.Revision, phrase.FormatTime(q.Since), quarantine.FormatCost(q.Cost), phrase.FormatTime(q.Until))
}

// quarantineWait returns the wait of the rows that are not rendered.
func quarantineWait(q quarantine.Quarantine) waitCause {
	return waitCause{
		reason: atoll.ReasonQuarantined, since: q.Since,
		text: fmt.Sprintf("a cheaper revision, or the end of its quarantine at %s; %s", phrase.FormatTime(q.Until), actorText(atoll.ActorOf(atoll.ReasonQuarantined))),
	}
}

// warnQuarantined sends an Event about each quarantine once.
func (r *BundleReconciler) warnQuarantined(s *bundleSnapshot, m *bundleMemo, q *quarantine.Quarantine) {
	if q == nil || m.quarantinedUntil.Equal(q.Until) {
		return
	}
	m.quarantinedUntil = q.Until
	r.Events.Warn(s.bundle.Ref, atoll.ReasonQuarantined, quarantineMessage(*q))
}
