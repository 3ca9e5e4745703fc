package admission

import (
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/overrides"
)

// Definitions are the CustomResourceDefinitions of the hub.
type Definitions interface {
	// FindCRD returns the definition of a kind; nil when it has none.
	FindCRD(kind schema.GroupKind) *unstructured.Unstructured
}

// checkKnownFields refuses fields that objects of the selected kinds do not have. Rules that are as they
// were before, under the same selectors, stay.
func (p *AdmissionPlugin) checkKnownFields(spec *v1alpha1.OverrideSpec, before *v1alpha1.OverridePolicy, at *field.Path) (errs field.ErrorList) {
	hub, _ := p.currentHub()
	definitionOf := func(gk schema.GroupKind) *unstructured.Unstructured {
		if hub.Definitions == nil {
			return nil
		}
		return hub.Definitions.FindCRD(gk)
	}
	var selected []schema.GroupKind
	for _, rs := range spec.ResourceSelectors {
		if gk := selectorKind(rs); !slices.Contains(selected, gk) {
			selected = append(selected, gk)
		}
	}
	for i := range spec.OverrideRules {
		rule := &spec.OverrideRules[i]
		if before != nil && apiequality.Semantic.DeepEqual(before.Spec.ResourceSelectors, spec.ResourceSelectors) &&
			slices.ContainsFunc(before.Spec.OverrideRules, func(r v1alpha1.RuleWithCluster) bool { return apiequality.Semantic.DeepEqual(r, *rule) }) {
			continue
		}
		for _, problem := range overrides.UnknownFields(rule, selected, definitionOf) {
			errs = append(errs, field.Invalid(at.Index(i).Child("overriders").Child(problem.Path), field.OmitValueType{}, problem.Reason))
		}
	}
	return errs
}
