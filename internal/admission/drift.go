package admission

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// changedDriftOrder returns the order to correct drift that an update of a Bundle gives; empty: it gives none.
func changedDriftOrder(a admission.Attributes) string {
	now, ok := a.GetObject().(*unstructured.Unstructured)
	before, ok2 := a.GetOldObject().(*unstructured.Unstructured)
	if !ok || !ok2 || a.GetOperation() != admission.Update || !isBundle(a) {
		return ""
	}
	value := now.GetAnnotations()[atoll.AnnotationCorrectDrift]
	if value == before.GetAnnotations()[atoll.AnnotationCorrectDrift] {
		return ""
	}
	return value
}

// stampDriftApprover writes the name of the user into an order to correct drift, whatever the writer states, and
// keeps earlier orders that the hub has not taken. A malformed order stays for its refusal. A hub that starts refuses,
// because it has no record of the earlier orders that it has taken.
func (p *AdmissionPlugin) stampDriftApprover(a admission.Attributes) error {
	value := changedDriftOrder(a)
	orders, err := atoll.ParseDriftOrders(value)
	if value == "" || err != nil || p.Own(a.GetUserInfo()) {
		return nil
	}
	hub, ok := p.currentHub()
	if !ok || hub.Drift == nil {
		return unreadDriftError()
	}
	u := a.GetObject().(*unstructured.Unstructured)
	orders = orders[:1:1]
	orders[0].By = a.GetUserInfo().GetName()
	before := a.GetOldObject().(*unstructured.Unstructured).GetAnnotations()[atoll.AnnotationCorrectDrift]
	if earlier, err := atoll.ParseDriftOrders(before); err == nil {
		orders = append(orders, hub.Drift.PendingDriftOrders(string(u.GetUID()), earlier)...)
	}
	annotations := u.GetAnnotations()
	annotations[atoll.AnnotationCorrectDrift] = atoll.FormatDriftOrders(orders)
	u.SetAnnotations(annotations)
	return nil
}

func unreadDriftError() error {
	return refusal.WithReason(atoll.ReasonPlanUnknown, apierrors.NewServiceUnavailable("the hub has just been started, and has not read the reported drift yet: try again"))
}

// validateDriftOrder refuses an order to correct what no cluster of the Bundle reports, by this hub's
// tables. The leading hub decides for each object.
func (p *AdmissionPlugin) validateDriftOrder(a admission.Attributes) error {
	value := changedDriftOrder(a)
	if value == "" {
		return nil // it is taken back
	}
	at := field.NewPath("metadata", "annotations").Key(atoll.AnnotationCorrectDrift)
	orders, err := atoll.ParseDriftOrders(value)
	if err != nil {
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(at, "", err.Error()))
	}
	hub, ok := p.currentHub()
	if !ok || hub.Drift == nil {
		return unreadDriftError()
	}
	if by := atoll.ApproverName(a.GetUserInfo().GetName()); orders[0].By != by {
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(at, "", fmt.Sprintf("the order is in the name of another user than %q", by)))
	}
	bundle, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return refuseRequest(a, atoll.ReasonUnreadable, errors.New("the Bundle cannot be read"))
	}
	if err := hub.Drift.CheckDriftOrder(string(bundle.GetUID()), orders[0]); err != nil {
		return refuseFields(a, atoll.ReasonPlanChanged, field.Invalid(at, "", err.Error()))
	}
	return nil
}
