package apply

import (
	"errors"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// approvedWrite is a correction that a person approved. It writes the object that was compared, and no later state. Its
// functions accept nil, for writes that need no approval. One goroutine uses it.
type approvedWrite struct {
	// version is the resource version of the object as it was compared, or as the correction left it; empty: the
	// object is missing.
	version string
	// mayBeDone: the member's API carried out an apply of the item, or gave no clear answer. The approval is used then.
	mayBeDone bool
}

// comparedVersion returns the resource version that the object must have; empty: any.
func (w *approvedWrite) comparedVersion() string {
	if w == nil {
		return ""
	}
	return w.version
}

// checkUnchanged returns why the object may not be corrected: it changed, or appeared, after the comparison.
func (w *approvedWrite) checkUnchanged(live *unstructured.Unstructured) *Failure {
	if w == nil || live.GetResourceVersion() == w.version {
		return nil
	}
	return changedSinceComparison()
}

// noteVersion keeps the version of the object after a write of the correction.
func (w *approvedWrite) noteVersion(obj *unstructured.Unstructured) {
	if w != nil {
		w.version = obj.GetResourceVersion()
	}
}

// noteApply keeps the result of an apply of the item.
func (w *approvedWrite) noteApply(obj *unstructured.Unstructured, err error) {
	switch {
	case w == nil:
	case err == nil:
		w.mayBeDone = true
		w.noteVersion(obj)
	case !isRefusal(err):
		w.mayBeDone = true
	}
}

// isRefusal reports whether the error of a write means that the member's API did not carry out the write.
// It is false for errors that leave this open, such as a passed deadline.
func isRefusal(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
	}
	dial := (*net.OpError)(nil)
	return errors.As(err, &dial) && dial.Op == "dial" // nothing was sent
}

// changedSinceComparison explains that an approved correction did not take place. The object is compared again: the same
// drift has the same ID, and is corrected then.
func changedSinceComparison() *Failure {
	return &Failure{
		Reason: atoll.ReasonApplyFailed, Waits: true, First: 100 * time.Millisecond,
		Message: "the object changed after it was compared, and is compared again before it is corrected",
	}
}
