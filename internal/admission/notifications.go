package admission

import (
	"context"
	"fmt"
	"net"
	"net/url"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/notify/happening"
	"atoll.dev/atoll/internal/notify/message"
	"atoll.dev/atoll/internal/policycheck"
)

// validateNotification refuses a Notification that could not be honoured, objects that the writer may not read, because a target gets their
// states, and a Secret that the writer may not read: the writer chooses the host to which the hub sends it.
func (p *AdmissionPlugin) validateNotification(ctx context.Context, a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.Notification](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil {
		return nil
	}
	if errs := checkNotification(now); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	sameTarget := before != nil && apiequality.Semantic.DeepEqual(before.Spec.Target, now.Spec.Target)
	if sameTarget && apiequality.Semantic.DeepEqual(before.Spec.Events, now.Spec.Events) && apiequality.Semantic.DeepEqual(before.Spec.Objects, now.Spec.Objects) {
		return nil
	}
	if err := p.requireReadableSubjects(ctx, a, now); err != nil {
		return err
	}
	if name := now.Spec.Target.GetSecretName(); name != "" && !sameTarget {
		return p.requireReadableSecret(ctx, a, "spec.target."+targetField(&now.Spec.Target)+".secretRef", name)
	}
	return nil
}

// subjectResources are the resources of the objects of events.
var subjectResources = map[string]string{happening.KindSource: "sources", happening.KindBundle: "bundles", happening.KindCluster: "clusters"}

// requireReadableSubjects refuses a writer that may not get the objects whose events are sent.
func (p *AdmissionPlugin) requireReadableSubjects(ctx context.Context, a admission.Attributes, n *v1alpha1.Notification) error {
	checked := map[string]bool{}
	for i, e := range n.Spec.Events {
		kind := happening.KindOf(e)
		if checked[kind] {
			continue
		}
		checked[kind] = true
		needs := []requiredRead{{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: subjectResources[kind]}, namespace: n.Namespace}}
		switch {
		case kind == happening.KindCluster:
			needs[0].namespace = ""
		case kind == happening.KindBundle && n.Namespace == atoll.SystemNamespace:
			needs = append(needs, requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "clusterbundles"}})
		}
		for _, need := range needs {
			if !p.isAllowed(ctx, a.GetUserInfo(), "get", need) {
				return refuseRequest(a, atoll.ReasonPermissionMissing, fmt.Errorf("spec.events[%d]: the target gets states of %s: the right to get them is needed, which %q lacks", i, need.resource, a.GetUserInfo().GetName()))
			}
		}
	}
	return nil
}

// targetField returns the field that a target states.
func targetField(t *v1alpha1.NotificationTarget) string {
	switch {
	case t.Slack != nil:
		return "slack"
	case t.Teams != nil:
		return "teams"
	case t.Webhook != nil:
		return "webhook"
	}
	return "email"
}

// checkNotification returns the fields that could not be honoured.
func checkNotification(n *v1alpha1.Notification) (errs field.ErrorList) {
	at := field.NewPath("spec")
	for i, e := range n.Spec.Events {
		switch happening.KindOf(e) {
		case "":
			errs = append(errs, field.Invalid(at.Child("events").Index(i), string(e), "is no event of this version"))
		case happening.KindCluster:
			if n.Namespace != atoll.SystemNamespace {
				errs = append(errs, field.Forbidden(at.Child("events").Index(i), "events of clusters are for Notifications in the namespace "+atoll.SystemNamespace))
			}
		}
	}
	errs = append(errs, checkNotificationObjects(n.Spec.Objects, at.Child("objects"))...)
	if n.Spec.Template != "" {
		if err := message.CheckTemplate(n.Spec.Template); err != nil {
			errs = append(errs, field.Invalid(at.Child("template"), field.OmitValueType{}, err.Error()))
		}
	}
	return append(errs, checkNotificationTarget(&n.Spec.Target, at.Child("target"))...)
}

func checkNotificationObjects(o *v1alpha1.NotificationObjects, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	return policycheck.CheckLabelSelector(o.LabelSelector, at.Child("labelSelector"))
}

// checkNotificationTarget returns why the hub cannot send to a target.
func checkNotificationTarget(t *v1alpha1.NotificationTarget, at *field.Path) (errs field.ErrorList) {
	if t.Webhook != nil {
		u, err := url.Parse(t.Webhook.URL)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			errs = append(errs, field.Invalid(at.Child("webhook", "url"), field.OmitValueType{}, "must be https://HOST/PATH, without credentials and a fragment"))
		}
	}
	if t.Email != nil {
		errs = append(errs, checkEmail(t.Email, at.Child("email"))...)
	}
	return errs
}

func checkEmail(t *v1alpha1.EmailTarget, at *field.Path) (errs field.ErrorList) {
	if net.ParseIP(t.Host) == nil {
		for _, why := range validation.IsDNS1123Subdomain(t.Host) {
			errs = append(errs, field.Invalid(at.Child("host"), t.Host, why))
		}
	}
	if _, err := message.ParseAddress(t.From); err != nil {
		errs = append(errs, field.Invalid(at.Child("from"), t.From, err.Error()))
	}
	for i, to := range t.To {
		if _, err := message.ParseAddress(to); err != nil {
			errs = append(errs, field.Invalid(at.Child("to").Index(i), to, err.Error()))
		}
	}
	return errs
}
