package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// closedGroups are Kubernetes' own, to which no CRD adds a kind: one that the hub does
// not serve there is a typing error.
var closedGroups = map[string]bool{"": true, "apps": true, "autoscaling": true, "batch": true, "policy": true}

func selectorKind(rs v1alpha1.ResourceSelector) schema.GroupKind {
	gv, _ := schema.ParseGroupVersion(rs.APIVersion)
	return schema.GroupKind{Group: gv.Group, Kind: rs.Kind}
}

// checkSelectors checks the selectors of a policy in the namespace; of a cluster policy when that is
// empty.
func (p *AdmissionPlugin) checkSelectors(list []v1alpha1.ResourceSelector, namespace string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, rs := range list {
		errs = append(errs, p.checkSelector(rs, namespace, at.Index(i))...)
	}
	return errs
}

func (p *AdmissionPlugin) checkSelector(rs v1alpha1.ResourceSelector, namespace string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rs.Kind == policymatch.AllKinds || rs.APIVersion == policymatch.AllKinds {
		return checkAllKindsSelector(rs, namespace, at)
	}
	if _, err := schema.ParseGroupVersion(rs.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), rs.APIVersion, "must be GROUP/VERSION, or VERSION for the core group"))
		return errs
	}
	gk := selectorKind(rs)
	namespaced, known := p.isNamespaced(gk)
	switch {
	case !policycheck.IsKindName(rs.Kind):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, "must be the name of one kind, such as Deployment"))
	case state.IsNeverTemplate(gk):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, "cannot be placed: it is of Atoll's own API, or made by machinery in every cluster"))
	case !known && closedGroups[gk.Group] && p.isKnownUnserved(gk):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, fmt.Sprintf("there is no such kind in %s", rs.APIVersion)))
	}
	errs = append(errs, checkSelectorNames(rs, at)...)
	errs = append(errs, checkSelectorScope(rs, known && !namespaced, namespace, at)...)
	return append(errs, policycheck.CheckLabelSelector(rs.LabelSelector, at.Child("labelSelector"))...)
}

// checkAllKindsSelector checks a selector of all kinds: apiVersion "*", GROUP/* or v1, and kind "*".
func checkAllKindsSelector(rs v1alpha1.ResourceSelector, namespace string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	gv, err := schema.ParseGroupVersion(rs.APIVersion)
	switch {
	case rs.Kind != policymatch.AllKinds:
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, `must be "*" where apiVersion is "*"`))
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), rs.APIVersion, `must be "*" for all groups, GROUP/* for one, or v1 for the core group`))
	case gv.Group != "" && gv.Version != policymatch.AllKinds:
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, fmt.Sprintf("must be the name of one kind; for all kinds of the group write apiVersion: %s/*", gv.Group)))
	case atoll.IsHubOwnedKind(schema.GroupKind{Group: gv.Group}):
		errs = append(errs, field.Invalid(at.Child("apiVersion"), rs.APIVersion, "cannot be placed: it is Atoll's own API"))
	}
	if rs.Name != "" {
		errs = append(errs, field.Forbidden(at.Child("name"), `kind "*" takes a labelSelector, and no name`))
	}
	errs = append(errs, checkSelectorNames(v1alpha1.ResourceSelector{Namespace: rs.Namespace}, at)...)
	errs = append(errs, checkSelectorScope(rs, false, namespace, at)...)
	return append(errs, policycheck.CheckLabelSelector(rs.LabelSelector, at.Child("labelSelector"))...)
}

// checkSelectorNames returns the malformed names in a selector.
func checkSelectorNames(rs v1alpha1.ResourceSelector, at *field.Path) (errs field.ErrorList) {
	if rs.Namespace != "" {
		for _, msg := range validation.IsDNS1123Label(rs.Namespace) {
			errs = append(errs, field.Invalid(at.Child("namespace"), rs.Namespace, msg))
		}
	}
	if rs.Name != "" {
		for _, msg := range content.IsPathSegmentName(rs.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), rs.Name, msg))
		}
	}
	return errs
}

// checkSelectorScope returns an error when a policy of that namespace cannot select the objects.
func checkSelectorScope(rs v1alpha1.ResourceSelector, clusterScoped bool, namespace string, at *field.Path) field.ErrorList {
	switch {
	case clusterScoped && namespace != "":
		return field.ErrorList{field.Invalid(at.Child("kind"), rs.Kind, "is cluster-scoped: only a cluster policy selects it")}
	case clusterScoped && rs.Namespace != "":
		return field.ErrorList{field.Invalid(at.Child("namespace"), rs.Namespace, fmt.Sprintf("a %s is cluster-scoped and has no namespace", rs.Kind))}
	case namespace != "" && rs.Namespace != "" && rs.Namespace != namespace:
		return field.ErrorList{field.Invalid(at.Child("namespace"), rs.Namespace, fmt.Sprintf("a policy in namespace %q selects only there", namespace))}
	}
	return nil
}

// isKnownUnserved reports whether the hub is known not to serve the kind, rather than not known
// to serve it.
func (p *AdmissionPlugin) isKnownUnserved(gk schema.GroupKind) bool {
	_, err := p.mapper.RESTMapping(gk)
	return meta.IsNoMatchError(err)
}
