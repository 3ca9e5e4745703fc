package undo

import (
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/undo/history"
)

// stepObjects are the objects of a question for a step, as the user has read them.
type stepObjects struct {
	Present map[string]any `json:"present"`
	// Live is the object after the write, of which the owners of fields are asked for.
	Live map[string]any `json:"live,omitempty"`
}

// readStepBody reads the body of a question for a step; nil: the question is another one.
func readStepBody(w http.ResponseWriter, r *http.Request, q *question) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	if q.object.IsSecret() {
		return nil, refuseQuestion("values of Secrets leave the hub by no step: use atoll undo")
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxStepBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewRequestEntityTooLargeError("the objects have more than 3 MiB: use atoll undo"))
	}
	if err != nil {
		return nil, refuseQuestion("the body cannot be read")
	}
	return raw, nil
}

// decodeStep reads the objects of a body, which are the object of the question in a version that the hub has stored.
func (q *question) decodeStep(raw []byte) error {
	if raw == nil {
		return nil
	}
	var s stepObjects
	if err := utiljson.Unmarshal(raw, &s); err != nil {
		return refuseQuestion("the body is no JSON with the present object")
	}
	for _, o := range []map[string]any{s.Present, s.Live} {
		u := unstructured.Unstructured{Object: o}
		switch {
		case o == nil:
		case !(&history.Content{Object: o}).IsOf(*q.object):
			return refuseQuestion("the body is of another object than the parameters name")
		case u.GetUID() == "" || u.GetResourceVersion() == "":
			return refuseQuestion("the object in the body lacks its uid or resourceVersion, to which the patch is bound: send it as the hub returns it")
		}
	}
	if s.Present == nil {
		return refuseQuestion("the body lacks the present object")
	}
	q.step = &s
	return nil
}

// planStep returns what the undo of an edit writes. An undo that creates or deletes the object is refused.
func planStep(q *question, changes []*history.Change) (*history.Step, error) {
	target, err := readTarget(q, changes)
	if err != nil {
		return nil, err
	}
	present := unstructured.Unstructured{Object: q.step.Present}
	switch {
	case target.Absent:
		return nil, refuseQuestion("the undo of this change deletes the object: use atoll undo")
	case present.GetDeletionTimestamp() != nil:
		return nil, refuseQuestion("the object is being deleted: use atoll undo, which waits for its end")
	case target.IsOfFormerObject(string(present.GetUID())):
		return nil, refuseQuestion("the object was deleted and made again since this change, and the deletion is not kept: use atoll undo --force")
	}
	step, err := target.NewStep(q.step.Present, q.step.Live)
	return &step, err
}
