package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// The field of the HubSettings that freezes all changes, and the field of a Bundle that exempts it.
var (
	freezePath    = []string{"spec", "freeze"}
	exemptionPath = []string{"spec", "freezeExemption"}
)

// The verbs that these fields need.
const (
	freezeVerb = "freeze"
	exemptVerb = "exempt"
)

const hubSettingsKind = "HubSettings"

func isHubSettings(a admission.Attributes) bool {
	return a.GetKind().GroupKind() == v1alpha1.GroupVersion.WithKind(hubSettingsKind).GroupKind()
}

// stampFreezeAuthor writes the user and the time into a freeze that a write states or edits, whatever the writer states. An edited
// freeze began when it was first stated. One that has ended is not edited: another one begins.
func (p *AdmissionPlugin) stampFreezeAuthor(a admission.Attributes) {
	now, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return
	}
	before, ok := a.GetOldObject().(*unstructured.Unstructured)
	if was := freezeOf(before); !ok || p.hasEnded(was) && !equality.Semantic.DeepEqual(freezeOf(now), was) {
		before = &unstructured.Unstructured{}
	}
	p.stampAuthor(a, now, before, freezePath, "since", p.Clock.Now().UTC().Format(stampLayout))
}

// hasEnded reports whether a freeze had an end that is over.
func (p *AdmissionPlugin) hasEnded(freeze map[string]any) bool {
	text, _ := freeze["until"].(string)
	until, err := time.Parse(time.RFC3339, text)
	return err == nil && !until.After(p.Clock.Now())
}

// validateFreeze refuses a write or a deletion of the HubSettings that sets, edits or lifts a freeze without the right to.
func (p *AdmissionPlugin) validateFreeze(ctx context.Context, a admission.Attributes) error {
	is, was := freezeOf(a.GetObject()), freezeOf(a.GetOldObject())
	if a.GetOperation() == admission.Delete {
		is = nil
	}
	if equality.Semantic.DeepEqual(is, was) {
		return nil
	}
	resource := requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "hubsettings"}, name: v1alpha1.HubSettingsName}
	if !p.isAllowed(ctx, a.GetUserInfo(), freezeVerb, resource) {
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%q may not set or lift a freeze of all changes: the verb %s on %s is needed", a.GetUserInfo().GetName(), freezeVerb, resource.resource))
	}
	text, _ := is["until"].(string)
	if text == "" || is["until"] == was["until"] {
		return nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil || !until.After(p.Clock.Now()) {
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(field.NewPath("spec", "freeze", "until"), phrase.CutText(text, 64), "must be a time in the future, as in "+time.RFC3339))
	}
	return nil
}

// freezeOf returns the freeze that HubSettings state; nil: none.
func freezeOf(obj runtime.Object) map[string]any {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil
	}
	out, _, _ := unstructured.NestedMap(u.Object, freezePath...)
	return out
}

// validateExemption refuses an exemption by a user without the right to exempt the Bundle. Its withdrawal needs no such right.
func (p *AdmissionPlugin) validateExemption(ctx context.Context, a admission.Attributes) error {
	now, _, err := decodeBundles(a)
	if err != nil {
		return refuseRequest(a, atoll.ReasonUnreadable, errors.New("the Bundle cannot be read"))
	}
	if now.Spec.FreezeExemption == nil {
		return nil
	}
	resource := requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: a.GetResource().Resource}, namespace: a.GetNamespace(), name: a.GetName()}
	if !p.isAllowed(ctx, a.GetUserInfo(), exemptVerb, resource) {
		return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("%q may not exempt %s %q from a freeze: the verb %s on %s is needed", a.GetUserInfo().GetName(), a.GetKind().Kind, a.GetName(), exemptVerb, resource.resource))
	}
	return nil
}
