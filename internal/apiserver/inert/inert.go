// Package inert keeps objects that steer a cluster from steering the hub.
//
// Contract: a template is stored on the hub to be delivered, not to act there. Objects of the
// kinds in this package that the hub itself did not create carry the label atoll.dev/inert unless
// they have atoll.dev/hub: "true", and follow that label when it changes. The API server's own
// lists and watches leave inert objects out, so no part of it sees them. The hub's own objects are
// never labelled. Everything here is safe for concurrent use.
package inert

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

const yes = "true"

var steering = map[schema.GroupResource]bool{
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}:     true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"}:   true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   true,
	{Group: "apiregistration.k8s.io", Resource: "apiservices"}:                             true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}:                       true,
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "prioritylevelconfigurations"}:       true,
	{Group: "", Resource: "resourcequotas"}:                                                true,
	{Group: "", Resource: "limitranges"}:                                                   true,
}

// NeedsInertFilter reports whether a request reads a kind of which inert objects have to be
// left out.
func NeedsInertFilter(info *request.RequestInfo) bool {
	return (info.Verb == "list" || info.Verb == "watch") &&
		steering[schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}]
}

// ExcludeInertObjects narrows a label selector to objects that act on the hub.
func ExcludeInertObjects(selector string) string {
	if selector == "" {
		return atoll.LabelInert + "!=" + yes
	}
	return selector + "," + atoll.LabelInert + "!=" + yes
}

// NewInertLabelAdmission returns the plugin that labels. own reports whether a user is one of the hub's own.
func NewInertLabelAdmission(own func(user.Info) bool) admission.MutationInterface {
	return inertLabelAdmission{Handler: admission.NewHandler(admission.Create, admission.Update), own: own}
}

type inertLabelAdmission struct {
	*admission.Handler
	own func(user.Info) bool
}

func (l inertLabelAdmission) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !steering[a.GetResource().GroupResource()] || a.GetSubresource() != "" || l.own(a.GetUserInfo()) {
		return nil
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return refusal.WithReason(atoll.ReasonUnreadable, admission.NewForbidden(a, err))
	}
	var old metav1.Object
	if a.GetOperation() == admission.Update {
		if old, err = meta.Accessor(a.GetOldObject()); err != nil {
			return refusal.WithReason(atoll.ReasonUnreadable, admission.NewForbidden(a, err))
		}
	}
	updateInertLabel(obj, old)
	return nil
}

// updateInertLabel sets or takes off obj's label; old is nil on create.
func updateInertLabel(obj, old metav1.Object) {
	labels := obj.GetLabels()
	switch {
	case labels[atoll.LabelHub] == yes:
		if _, labelled := labels[atoll.LabelInert]; labelled {
			delete(labels, atoll.LabelInert)
			obj.SetLabels(labels)
		}
	case old != nil && !isTemplate(old.GetLabels()) && !isTemplate(labels):
		// Made by the hub itself, which others may edit.
	case labels[atoll.LabelInert] != yes:
		if labels == nil {
			labels = map[string]string{}
		}
		labels[atoll.LabelInert] = yes
		obj.SetLabels(labels)
	}
}

// isTemplate distinguishes objects of users from those that the hub made.
func isTemplate(labels map[string]string) bool {
	_, inert := labels[atoll.LabelInert]
	_, hub := labels[atoll.LabelHub]
	return inert || hub
}
