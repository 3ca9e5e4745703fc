package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/refusal"
	"atoll.dev/atoll/internal/schedule"
)

// validateCluster refuses malformed taints, zones, time zones and capacity, and writes by users that manage no set of
// the Cluster or may not accept.
func (p *AdmissionPlugin) validateCluster(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.Cluster](a)
	if err != nil {
		return err
	}
	if errs := checkClusterFields(now, before); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	if err := p.validateSetMembership(ctx, a, now, before); err != nil {
		return err
	}
	if err := p.validateClusterRemoval(ctx, a, now, before); err != nil {
		return err
	}
	if !now.Spec.Accepted || before != nil && before.Spec.Accepted {
		return nil
	}
	if p.isAllowed(ctx, a.GetUserInfo(), "accept", requiredRead{resource: clusters, name: a.GetName()}) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.accepted: %q may not accept clusters: the verb accept on %s is needed", a.GetUserInfo().GetName(), clusters))
}

// checkClusterFields returns the fields of a Cluster that could not be honoured.
func checkClusterFields(now, before *v1alpha1.Cluster) (errs field.ErrorList) {
	for i, t := range now.Spec.Taints {
		at := field.NewPath("spec", "taints").Index(i)
		for _, msg := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
	}
	errs = append(errs, checkDrainTaints(now.Spec.Taints, before)...)
	errs = append(errs, policycheck.CheckZones(&now.Spec, field.NewPath("spec"))...)
	if before == nil || before.Spec.TimeZone != now.Spec.TimeZone { // a hub with a smaller database leaves a stored one as it is
		errs = append(errs, changewindow.CheckTimeZone(now.Spec.TimeZone, field.NewPath("spec", "timeZone"))...)
	}
	errs = append(errs, schedule.CheckCapacity(now.Spec.Capacity, field.NewPath("spec", "capacity"))...)
	return errs
}

// checkDrainTaints refuses taints with the key of a drain that drain nothing. Those that were there before the edit stay
// valid, so that the Cluster can be written still.
func checkDrainTaints(taints []v1alpha1.Taint, before *v1alpha1.Cluster) (errs field.ErrorList) {
	for i, t := range taints {
		at := field.NewPath("spec", "taints").Index(i)
		isOld := before != nil && slices.ContainsFunc(before.Spec.Taints, func(old v1alpha1.Taint) bool {
			return old.Key == t.Key && old.Value == t.Value && old.Effect == t.Effect
		})
		if t.Key != v1alpha1.TaintDrain || isOld {
			continue
		}
		if t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{corev1.TaintEffectNoExecute}))
		}
		if t.Value != "" && t.Value != v1alpha1.DrainRemoveUnreplaced {
			errs = append(errs, field.NotSupported(at.Child("value"), t.Value, []string{"", v1alpha1.DrainRemoveUnreplaced}))
		}
	}
	return errs
}

var clusters = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusters"}

// validateClusterRemoval refuses a removal from the fleet by a user that may not delete the Cluster,
// because its effect is the same. A user that may update the Cluster may take a removal back.
func (p *AdmissionPlugin) validateClusterRemoval(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Cluster) error {
	is := now.Spec.Removal
	if is == nil || before != nil && before.Spec.Removal != nil && *before.Spec.Removal == *is {
		return nil
	}
	if !p.isAllowed(ctx, a.GetUserInfo(), "delete", requiredRead{resource: clusters, name: a.GetName()}) {
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.removal: %q may not remove clusters: the verb delete on %s is needed", a.GetUserInfo().GetName(), clusters))
	}
	return p.validateRemovalConfirmation(ctx, a, now, before)
}

// validateRemovalConfirmation refuses a confirmation of anything else than what is in the cluster now, by
// this hub's tables: they may lag, and whether anything goes the leading hub's decide
// (internal/decommission). One that stands may stay while the removal goes on, by which there is ever less, and when what is
// left is to stay after all.
func (p *AdmissionPlugin) validateRemovalConfirmation(ctx context.Context, a admission.Attributes, now, before *v1alpha1.Cluster) error {
	is, was := now.Spec.Removal, (*v1alpha1.ClusterRemoval)(nil)
	if before != nil {
		was = before.Spec.Removal
	}
	if is.Confirm == "" || was != nil && was.Confirm == is.Confirm && (was.Mode == is.Mode || is.Mode == v1alpha1.ClusterOrphan) {
		return nil
	}
	plan, err := p.hashCleanPlan(ctx, now)
	at := field.NewPath("spec", "removal", "confirm")
	switch {
	case err != nil:
		return refusal.WithReason(atoll.ReasonPlanUnknown, apierrors.NewServiceUnavailable(fmt.Sprintf("%s: what is in the cluster is not known yet, try again: %v", at, err)))
	case before == nil || plan == "":
		return refuseFields(a, atoll.ReasonPlanChanged, field.Invalid(at, is.Confirm, "nothing is in the cluster that would have to be confirmed"))
	case plan != is.Confirm:
		return refuseFields(a, atoll.ReasonPlanChanged, field.Invalid(at, is.Confirm, fmt.Sprintf(
			"what would be removed is another plan now; `atoll confirm cluster/%s` shows it, and --plan %s releases it", now.Name, plan)))
	}
	return nil
}

// stampRemovalTime records when the removal of the Cluster was requested, whatever the writer states.
// The time distinguishes this removal from an earlier one, whose confirmation may still exist
// somewhere.
func (p *AdmissionPlugin) stampRemovalTime(a admission.Attributes) {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return
	}
	mode := func(u *unstructured.Unstructured) string {
		mode, _, _ := unstructured.NestedString(u.Object, "spec", "removal", "mode")
		return mode // of the wrong shape: the schema refuses it
	}
	asked := ""
	if now := mode(u); now != "" {
		asked = p.Clock.Now().UTC().Format(time.RFC3339Nano)
		if old, ok := a.GetOldObject().(*unstructured.Unstructured); ok && a.GetOperation() == admission.Update && mode(old) == now {
			asked = old.GetAnnotations()[atoll.AnnotationRemovalRequested]
		}
	}
	annotations := u.GetAnnotations()
	if annotations[atoll.AnnotationRemovalRequested] == asked {
		return
	}
	if asked == "" {
		delete(annotations, atoll.AnnotationRemovalRequested)
	} else {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[atoll.AnnotationRemovalRequested] = asked
	}
	u.SetAnnotations(annotations)
}

// stampTaintTimes notes since when NoExecute taints are there, from which tolerations
// count.
func (p *AdmissionPlugin) stampTaintTimes(a admission.Attributes) error {
	u, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	taints, found, err := unstructured.NestedSlice(u.Object, "spec", "taints")
	if err != nil || !found {
		return nil // of the wrong shape, which the schema refuses
	}
	before := formerTaintTimes(a)
	changed := false
	for _, t := range taints {
		m, ok := t.(map[string]any)
		if !ok || m["effect"] != string(corev1.TaintEffectNoExecute) || m["timeAdded"] != nil {
			continue
		}
		since := before[taintID(m)]
		if since == "" {
			since = metav1.NewTime(p.Clock.Now()).UTC().Format("2006-01-02T15:04:05Z")
		}
		m["timeAdded"], changed = since, true
	}
	if !changed {
		return nil
	}
	return unstructured.SetNestedSlice(u.Object, taints, "spec", "taints")
}

// formerTaintTimes returns when the taints were added that the Cluster has before an update.
func formerTaintTimes(a admission.Attributes) map[string]string {
	times := map[string]string{}
	old, ok := a.GetOldObject().(*unstructured.Unstructured)
	if !ok || a.GetOperation() != admission.Update {
		return times
	}
	list, _, _ := unstructured.NestedSlice(old.Object, "spec", "taints")
	for _, t := range list {
		if m, ok := t.(map[string]any); ok {
			times[taintID(m)], _ = m["timeAdded"].(string)
		}
	}
	return times
}

func taintID(m map[string]any) string { return fmt.Sprint(m["key"], "=", m["value"], ":", m["effect"]) }
