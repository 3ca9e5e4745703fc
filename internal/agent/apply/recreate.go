package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/rand"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// An item may state that its object is deleted and created again where the member's API refuses an edit of a
// field that cannot change. The API's own words differ by kind, so the Engine checks by a dry run whether
// the API would accept a new object with the content.

// mayRecreateAfterRefusal reports whether an apply to an object of Atoll's failed that the item lets the Engine create
// again.
func mayRecreateAfterRefusal(err error, p pendingWork, s applyParams) bool {
	return p.Item.Recreate && apierrors.IsInvalid(err) && !isUIDMismatch(err) && !s.adopt && s.uid != "" && s.uid == p.Record.UID
}

// scheduleRecreation lets the next pass delete the object and create it again, or returns why the object stays. refused is
// the answer of the member's API to the edit.
func (e *MemberApplier) scheduleRecreation(ctx context.Context, p pendingWork, res member.Resource, refused error) *Failure {
	failure := failureFromError(refused, p.Key)
	switch {
	case p.Record.Adopted:
		failure.Message = truncateText("it was not made by Atoll, and is not created again: " + failure.Message)
		return failure
	case ownership.DeletionLosesDataOrDependents(p.Key):
		failure.Message = truncateText("its deletion would take along more than the object, so that it is not created again: " + failure.Message)
		return failure
	}
	accepted, failed := e.isAcceptedAsNew(ctx, p, res)
	if failed != nil {
		return failed
	}
	if !accepted {
		return failure
	}
	e.o.Log.Info("the object is deleted and created again, because the member refuses the edit", "object", p.Key, "err", refused)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ensureTask(p.Key).recreate = p.Item.Hash
	e.markDue(p.Key)
	return nil
}

// isAcceptedAsNew reports whether the member's API would accept a new object with the content of the item.
// It applies one of another name, by an apply that the API does not carry out.
func (e *MemberApplier) isAcceptedAsNew(ctx context.Context, p pendingWork, res member.Resource) (bool, *Failure) {
	body, failure := applyBody(p, applyParams{})
	if failure != nil {
		return false, failure
	}
	name := fmt.Sprintf("%.240s-%s", p.Key.Name, rand.String(8))
	named := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &named.Object); err != nil {
		return false, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	named.SetName(name)
	body, err := json.Marshal(named.Object)
	if err != nil {
		return false, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	_, err = e.o.Client.Apply(ctx, member.Patch{
		Resource: res, Namespace: p.Key.Namespace, Name: name, Manager: atoll.FieldManager, DryRun: true, Body: body,
	})
	if err != nil && !apierrors.IsInvalid(err) {
		return false, failureFromError(err, p.Key)
	}
	return err == nil, nil
}
