package apply

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// lacksFieldInAppliedVersion reports whether an apply failed since the object has a field that the version in which
// it was applied last does not have. The API server reads the new object in that version to find removed fields.
func lacksFieldInAppliedVersion(err error) bool {
	return strings.Contains(err.Error(), "to last applied version") && strings.Contains(err.Error(), "field not declared in schema")
}

// withAppliedVersion returns the entries, with those of Atoll's applies in another version. Versions that differ by
// undeclared fields name the others alike.
func withAppliedVersion(fields []metav1.ManagedFieldsEntry, apiVersion string) (out []metav1.ManagedFieldsEntry, changed bool) {
	for _, f := range fields {
		if f.Manager == atoll.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.APIVersion != apiVersion {
			f.APIVersion, changed = apiVersion, true
		}
		out = append(out, f)
	}
	return out, changed
}

// moveAppliedVersion states Atoll's fields of the object in the version of res, after an apply that failed by the
// version of the last one. The next apply is compared in it. A nil Failure means that there is nothing to move.
func (e *MemberApplier) moveAppliedVersion(ctx context.Context, refused error, p pendingWork, res member.Resource, uid string) *Failure {
	if uid == "" || !lacksFieldInAppliedVersion(refused) {
		return nil
	}
	live, err := e.o.Client.GetMetadata(ctx, res, p.Key.Namespace, p.Key.Name)
	if err != nil {
		return failureFromError(err, p.Key)
	}
	fields, changed := withAppliedVersion(live.ManagedFields, res.GroupVersion().String())
	if !changed || string(live.UID) != uid {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": live.ResourceVersion, "managedFields": fields}})
	if err != nil {
		return failureFromError(err, p.Key)
	}
	if err := e.o.Client.MergePatch(ctx, res, p.Key.Namespace, p.Key.Name, patch); err != nil && !apierrors.IsConflict(err) {
		return failureFromError(err, p.Key)
	}
	return &Failure{Reason: atoll.ReasonPending, Waits: true, First: 10 * time.Millisecond, Most: 10 * time.Second, Message: "it is applied again in the version that the member serves now"}
}
