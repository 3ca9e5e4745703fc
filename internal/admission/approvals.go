package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policycheck"
)

// approvalsPath is the field of a Bundle by which people approve stages of its rollout.
var approvalsPath = []string{"spec", "approvals"}

// stampApprovals writes the user and the time into the approvals that an update adds or edits, whatever the writer states.
// Approvals of other revisions go with the next approval, also where they are as many as the schema accepts.
func (p *AdmissionPlugin) stampApprovals(a admission.Attributes, now, before *unstructured.Unstructured, at string) {
	is, _, _ := unstructured.NestedSlice(now.Object, approvalsPath...)
	was, _, _ := unstructured.NestedSlice(before.Object, approvalsPath...)
	if len(is) == 0 || len(is) > 2*policycheck.MaxApprovals || isSameList(is, was) {
		return
	}
	revision, _, _ := unstructured.NestedString(now.Object, "status", "revision")
	var old, added []any
	for _, one := range is {
		approval, ok := one.(map[string]any)
		switch {
		case !ok:
			return // the schema refuses it
		case !slices.ContainsFunc(was, func(o any) bool { return isSameList([]any{o}, []any{one}) }):
			approval["by"], approval["at"] = approverOf(a), at
			added = append(added, approval)
		case revision == "" || approval["revision"] == revision:
			old = append(old, approval)
		}
	}
	old = slices.DeleteFunc(old, func(o any) bool { // the user approves again
		return slices.ContainsFunc(added, func(n any) bool { return isSameApproval(o.(map[string]any), n.(map[string]any)) })
	})
	out := append(old, added...)
	_ = unstructured.SetNestedSlice(now.Object, out, approvalsPath...) // fails for no object that has the path
}

func approverOf(a admission.Attributes) string {
	return phrase.TruncateText(a.GetUserInfo().GetName(), maxAuthorBytes)
}

// isSameApproval reports whether two approvals are of one user for one revision and stage.
func isSameApproval(a, b map[string]any) bool {
	return a["by"] == b["by"] && a["stage"] == b["stage"] && a["revision"] == b["revision"]
}

func isSameList(a, b []any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// validateApprovals refuses approvals by a user without the right to approve the Bundle, and those of a revision or a stage
// that the Bundle does not have.
func (p *AdmissionPlugin) validateApprovals(ctx context.Context, a admission.Attributes) error {
	bundle, before, err := decodeBundles(a)
	if err != nil {
		return refuseRequest(a, atoll.ReasonUnreadable, errors.New("the Bundle cannot be read"))
	}
	resource := requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: a.GetResource().Resource}, namespace: a.GetNamespace(), name: a.GetName()}
	if !p.isAllowed(ctx, a.GetUserInfo(), "approve", resource) {
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%q may not approve %s %q: the verb approve on %s is needed", a.GetUserInfo().GetName(), a.GetKind().Kind, a.GetName(), resource.resource))
	}
	at := field.NewPath(approvalsPath[0], approvalsPath[1:]...)
	for i, approval := range bundle.Spec.Approvals {
		if slices.Contains(before.Spec.Approvals, approval) {
			continue
		}
		if approval.By != approverOf(a) {
			return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(at.Index(i).Child("by"), approval.By, "the approval is in the name of another user"))
		}
		if err := checkApproval(bundle, &bundle.Spec.Approvals[i], at.Index(i)); err != nil {
			return refuseFields(a, atoll.ReasonInvalidField, err)
		}
	}
	return nil
}

func decodeBundles(a admission.Attributes) (now, before *v1alpha1.Bundle, err error) {
	decode := func(obj runtime.Object) (*v1alpha1.Bundle, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, errors.New("no object")
		}
		out := &v1alpha1.Bundle{} // a ClusterBundle has the same fields
		return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
	}
	if now, err = decode(a.GetObject()); err != nil {
		return nil, nil, err
	}
	before, err = decode(a.GetOldObject())
	return now, before, err
}

// checkApproval refuses an approval that no gate reads.
func checkApproval(b *v1alpha1.Bundle, approval *v1alpha1.RolloutApproval, at *field.Path) *field.Error {
	if approval.Revision != b.Status.Revision {
		return field.Invalid(at.Child("revision"), approval.Revision, fmt.Sprintf("the Bundle is at revision %q: look at what changed, and approve that one", b.Status.Revision))
	}
	if b.Spec.Rollout != nil {
		for _, s := range b.Spec.Rollout.ListStages() {
			if s.Name == approval.Stage && slices.ContainsFunc(slices.Concat(s.GatesBefore, s.GatesAfter), func(g v1alpha1.RolloutGate) bool { return g.Approval != nil }) {
				return nil
			}
		}
	}
	return field.Invalid(at.Child("stage"), approval.Stage, "no stage of the name has an approval gate")
}
