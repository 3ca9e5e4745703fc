package bundlestatus

import (
	"time"

	"atoll.dev/atoll/internal/kinds"
)

// joinMemo is the memory of a script that joins what clusters report of a template: one hash of its
// input, however many clusters there are, and its answer only until that
// is written.
type joinMemo struct {
	question string
	// nothing is to be written, whatever the template's status has: the script fails, or returns none.
	nothing bool
	// versions of the template at which its status has the answer: the one that was looked
	// at, or those before and after the answer was written.
	versions [2]string
	// answer that is to be written over the template's version at, unless it is nil.
	answer map[string]any
	at     string
}

// isSettled reports whether there is nothing to do about the question while the template has that
// version.
func (j *joinMemo) isSettled(question, version string) bool {
	return question != "" && j.question == question && (j.nothing || version == j.versions[0] || version == j.versions[1])
}

// pendingAnswer is the answer to the question that was not written yet; nil where there is none.
func (j *joinMemo) pendingAnswer(question, version string) map[string]any {
	if question == "" || j.question != question || j.at != version {
		return nil
	}
	return j.answer
}

// itemReport is what is reported of an item, from which its template's status follows.
type itemReport struct {
	rows     []kinds.RowItem
	observed int64
	// question to a script that joins the rows; empty: none does.
	question string
}

// isStatusSettled reports whether the template's status was found to have all that already.
func (l templateState) isStatusSettled(w itemReport) bool {
	if w.question != "" {
		return l.memo.joined.isSettled(w.question, l.template.GetResourceVersion())
	}
	return l.memo.lastWritten.matchesReport(l, w.rows, w.observed)
}

// markStatusSettled records that the template's status, at these versions, is complete.
func (l templateState) markStatusSettled(w itemReport, versions ...string) {
	if w.question == "" {
		l.memo.lastWritten.recordSettled(l, w.rows, w.observed)
		return
	}
	l.memo.joined = joinMemo{question: w.question, nothing: len(versions) == 0}
	copy(l.memo.joined.versions[:], versions)
}

// clockSkew is how far ahead of the hub's clock a member's times may be.
const clockSkew = time.Hour

// nextTemplateStatus returns the status that follows from the words; it is to be written if ok.
func (r *BundleReconciler) nextTemplateStatus(l templateState, w itemReport) (next map[string]any, ok bool, err error) {
	version := l.template.GetResourceVersion()
	if next = l.memo.joined.pendingAnswer(w.question, version); next != nil {
		return next, true, nil
	}
	next, ok, err = r.aggregate(l.interpreters, l.template, l.item.Divided, w.rows, w.observed, time.Now().Add(clockSkew).Unix())
	if w.question != "" && ok && err == nil {
		l.memo.joined = joinMemo{question: w.question, answer: next, at: version}
	}
	return next, ok, err
}
