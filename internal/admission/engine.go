package admission

import (
	"context"
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var engineGroup = enginev1.GroupVersion.Group

func isBundle(a admission.Attributes) bool {
	k := a.GetKind()
	return k.Group == v1alpha1.GroupVersion.Group && (k.Kind == "Bundle" || k.Kind == "ClusterBundle")
}

// isPlacementDecision reports whether the hub publishes the object for a Placement.
func isPlacementDecision(a admission.Attributes) bool {
	k := a.GetKind()
	return k.Group == v1alpha1.GroupVersion.Group && (k.Kind == "PlacementDecision" || k.Kind == "ClusterPlacementDecision")
}

// isHubWrittenKind reports whether the hub itself writes objects of the kind.
func isHubWrittenKind(a admission.Attributes) bool {
	return a.GetKind().Group == engineGroup || isBundle(a) || isPlacementDecision(a)
}

// validateHubWrittenKinds refuses users' writes to what the hub itself writes. On a Bundle, users may
// confirm or withdraw a removal, pause, resume and approve its rollout, exempt it from a freeze, and request a new placement. On the HubState, they may answer
// after a restore.
func (p *AdmissionPlugin) validateHubWrittenKinds(ctx context.Context, a admission.Attributes) error {
	kind := a.GetKind().Kind
	if isPlacementDecision(a) {
		if isGarbageCollection(a) {
			return nil // with its Placement
		}
		return refuseRequest(a, atoll.ReasonWrittenByHub, fmt.Errorf("only the hub writes a %s: edit the placement that it comes from", kind))
	}
	if kind == "APISet" && a.GetOperation() == admission.Delete {
		return nil // the hub keeps what it read of the set, and an agent sends it again
	}
	if a.GetOperation() == admission.Update {
		if decided, err := p.validateAnswerToHub(ctx, a); decided {
			return err
		}
	}
	return refuseRequest(a, atoll.ReasonWrittenByHub, fmt.Errorf("only the hub writes a %s: edit the policy, annotation or object that it comes from", kind))
}

// validateAnswerToHub decides about an update by which users answer the hub. decided is false for
// objects that take no answer.
func (p *AdmissionPlugin) validateAnswerToHub(ctx context.Context, a admission.Attributes) (decided bool, err error) {
	kind := a.GetKind().Kind
	switch {
	case isBundle(a) && a.GetSubresource() == "":
		for _, answer := range []string{atoll.AnnotationConfirm, atoll.AnnotationKeep} {
			if changesOnlyField(a, []string{"metadata", "annotations", answer}) {
				return true, nil
			}
		}
		if changesOnlyField(a, pausePath, resumePath) {
			return true, nil
		}
		if changesOnlyField(a, exemptionPath) {
			return true, p.validateExemption(ctx, a)
		}
		if changesOnlyField(a, approvalsPath) {
			return true, p.validateApprovals(ctx, a)
		}
		if changesOnlyField(a, []string{"metadata", "annotations", atoll.AnnotationCorrectDrift}) {
			return true, p.validateDriftOrder(a)
		}
		if changesOnlyField(a, []string{"metadata", "annotations", atoll.AnnotationRebalance}) {
			return true, p.validateRebalance(ctx, a)
		}
		if changesOnlyField(a, []string{"metadata", "annotations", atoll.AnnotationRemovalHooks}) {
			return true, validateRemovalHooks(a)
		}
		return true, refuseRequest(a, atoll.ReasonWrittenByHub, fmt.Errorf("only the annotation %s, %s, %s, %s or %s, or spec.pause, spec.resume, spec.freezeExemption or spec.approvals, of a %s may be changed, and one at a time: edit the policy, annotation or object that it comes from",
			atoll.AnnotationConfirm, atoll.AnnotationKeep, atoll.AnnotationRebalance, atoll.AnnotationCorrectDrift, atoll.AnnotationRemovalHooks, kind))
	case kind == "HubState":
		return true, validateHubState(a)
	}
	return false, nil
}

// validateHubState refuses an update of the hub's state that is no answer to the hub.
func validateHubState(a admission.Attributes) error {
	if changesOnlyField(a, []string{"rewound", "accepted"}) {
		return nil
	}
	return refuseRequest(a, atoll.ReasonWrittenByHub, errors.New("only rewound.accepted of the hub's state may be changed, by: atoll restore accept"))
}

// changesOnlyField reports whether an update changes nothing but the field, or the fields.
func changesOnlyField(a admission.Attributes, paths ...[]string) bool {
	now, ok := a.GetObject().(*unstructured.Unstructured)
	before, ok2 := a.GetOldObject().(*unstructured.Unstructured)
	if !ok || !ok2 {
		return false
	}
	return apiequality.Semantic.DeepEqual(withoutPaths(now, paths), withoutPaths(before, paths))
}

func withoutPaths(u *unstructured.Unstructured, paths [][]string) map[string]any {
	u = u.DeepCopy()
	for _, path := range paths {
		unstructured.RemoveNestedField(u.Object, path...)
	}
	for _, hubs := range []string{"managedFields", "resourceVersion", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", hubs)
	}
	if m, ok, _ := unstructured.NestedMap(u.Object, "metadata", "annotations"); ok && len(m) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return u.Object
}
