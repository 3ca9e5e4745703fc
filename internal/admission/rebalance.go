package admission

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// The tolerance between the time of a rebalance and the hub's clock: long enough to look at the
// preview, and too short for an old time that returns, or one that blocks all later ones.
const (
	rebalancePast   = 10 * time.Minute
	rebalanceFuture = time.Minute
)

// validateRebalance checks the rebalance of a Bundle: a user that may write its policy may have it placed from scratch.
func (p *AdmissionPlugin) validateRebalance(ctx context.Context, a admission.Attributes) error {
	if errs := p.checkRebalance(a); len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	b, err := convertTo[v1alpha1.Bundle](a.GetObject())
	if err != nil {
		return refuseRequest(a, atoll.ReasonUnreadable, err)
	}
	if err := p.mayWriteSource(ctx, a.GetUserInfo(), a.GetNamespace(), b.Spec.Source); err != nil {
		return refuseRequest(a, atoll.ReasonPermissionMissing, err)
	}
	return nil
}

// MayRebalance returns why the user may not have a Bundle of such a source placed from
// scratch; nil: it may.
func (p *AdmissionPlugin) MayRebalance(ctx context.Context, u user.Info, namespace, name string, source v1alpha1.BundleSource) error {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "bundles"}
	if namespace == "" {
		resource.Resource = "clusterbundles"
	}
	if !p.isAllowed(ctx, u, "patch", requiredRead{resource: resource, namespace: namespace, name: name}) {
		return fmt.Errorf("the verb patch on %s is needed, which %q lacks", resource, u.GetName())
	}
	return p.mayWriteSource(ctx, u, namespace, source)
}

// mayWriteSource: a Bundle that is placed from scratch goes where its policy places it, and the
// policy's author decides when. For an annotation, the right on the Bundle is enough.
func (p *AdmissionPlugin) mayWriteSource(ctx context.Context, u user.Info, namespace string, source v1alpha1.BundleSource) error {
	x := requiredRead{resource: schema.GroupResource{Group: v1alpha1.GroupVersion.Group}, name: source.Name}
	switch source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		x.resource.Resource, x.namespace = "propagationpolicies", namespace
	case v1alpha1.SourceClusterPropagationPolicy:
		x.resource.Resource = "clusterpropagationpolicies"
	case v1alpha1.SourceHubSettings:
		x.resource.Resource = "hubsettings"
	default:
		return nil
	}
	if p.isAllowed(ctx, u, "update", x) {
		return nil
	}
	return fmt.Errorf("it is placed by %s %s: a user that has it placed from scratch must be able to update that, and %q may not", source.Kind, source.Name, u.GetName())
}

// checkRebalance refuses a time of a rebalance that rows could not distinguish from others.
func (p *AdmissionPlugin) checkRebalance(a admission.Attributes) field.ErrorList {
	now, before, err := objectMetas(a)
	if err != nil {
		return nil // reported to the reader of the object
	}
	value, asked := now.GetAnnotations()[atoll.AnnotationRebalance]
	was := ""
	if before != nil {
		was = before.GetAnnotations()[atoll.AnnotationRebalance]
	}
	if !asked || value == was {
		return nil
	}
	path, clock := field.NewPath("metadata", "annotations").Key(atoll.AnnotationRebalance), p.Clock.Now()
	at, err := atoll.ParseRebalanceTime(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be a time such as "+atoll.FormatRebalanceTime(clock))}
	}
	if last, err := atoll.ParseRebalanceTime(was); err == nil && !at.After(last) {
		return field.ErrorList{field.Invalid(path, value, "must be later than the last one, "+was)}
	}
	if at.Before(clock.Add(-rebalancePast)) || at.After(clock.Add(rebalanceFuture)) {
		return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be a time of the last %s; it is %s now", phrase.FormatDuration(rebalancePast), atoll.FormatRebalanceTime(clock)))}
	}
	return nil
}

// MayUpdate reports whether the API server's authorizer lets the user update an object.
func (p *AdmissionPlugin) MayUpdate(ctx context.Context, u user.Info, key atoll.ItemKey) bool {
	gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
	return p.isAllowed(ctx, u, "update", requiredRead{kind: gk, resource: p.resourceOf(gk), namespace: key.Namespace, name: key.Name})
}
