package admission

import (
	"fmt"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

var kindForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

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
	case !kindForm.MatchString(rs.Kind):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, "must be the name of one kind, such as Deployment"))
	case state.IsNeverTemplate(gk):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, "cannot be placed: it is of Atoll's own API, or made by machinery in every cluster"))
	case !known && closedGroups[gk.Group] && p.isKnownUnserved(gk):
		errs = append(errs, field.Invalid(at.Child("kind"), rs.Kind, fmt.Sprintf("there is no such kind in %s", rs.APIVersion)))
	}
	errs = append(errs, checkSelectorNames(rs, at)...)
	errs = append(errs, checkSelectorScope(rs, known && !namespaced, namespace, at)...)
	return append(errs, checkLabels(rs.LabelSelector, at.Child("labelSelector"))...)
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
	return append(errs, checkLabels(rs.LabelSelector, at.Child("labelSelector"))...)
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

// checkLabels refuses selectors that are malformed, select everything or nothing.
func checkLabels(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Required(at, "an empty selector selects everything: leave it out if that is meant")}
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
	if len(errs) > 0 {
		return errs
	}
	keys := map[string]*keyConstraint{}
	get := func(key string) *keyConstraint {
		if keys[key] == nil {
			keys[key] = &keyConstraint{}
		}
		return keys[key]
	}
	for k, v := range s.MatchLabels {
		get(k).restrictTo([]string{v})
	}
	for _, r := range s.MatchExpressions {
		switch c := get(r.Key); r.Operator {
		case metav1.LabelSelectorOpIn:
			c.restrictTo(r.Values)
		case metav1.LabelSelectorOpNotIn:
			c.not = append(c.not, r.Values...)
		case metav1.LabelSelectorOpExists:
			c.exists = true
		case metav1.LabelSelectorOpDoesNotExist:
			c.absent = true
		}
	}
	return findContradictions(keys, at)
}

// keyConstraint is all that a selector requires of one key.
type keyConstraint struct {
	values  []string
	limited bool
	not     []string
	exists  bool
	absent  bool
}

func (c *keyConstraint) restrictTo(values []string) {
	if !c.limited {
		c.values, c.limited = slices.Clone(values), true
		return
	}
	c.values = slices.DeleteFunc(c.values, func(v string) bool { return !slices.Contains(values, v) })
}

func findContradictions(keys map[string]*keyConstraint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for key, c := range keys {
		c.values = slices.DeleteFunc(c.values, func(v string) bool { return slices.Contains(c.not, v) })
		if c.limited && len(c.values) == 0 || c.absent && (c.limited || c.exists) {
			errs = append(errs, field.Invalid(at, key, "the requirements of this key contradict each other, so that nothing matches"))
		}
	}
	return errs
}

// checkPlacement checks the placement of a propagation policy.
func (p *AdmissionPlugin) checkPlacement(pl *v1alpha1.PlacementSpec, at *field.Path) field.ErrorList {
	errs := checkAffinity(pl.ClusterAffinity, at.Child("clusterAffinity"))
	errs = append(errs, p.checkFilters(pl, at)...)
	errs = append(errs, p.checkSpreadScoresAndGroups(pl, at)...)
	for i, t := range pl.ClusterTolerations {
		errs = append(errs, checkToleration(t, at.Child("clusterTolerations").Index(i))...)
	}
	if w := pl.ReplicaScheduling.WeightPreference; w != nil {
		list := at.Child("replicaScheduling", "weightPreference", "staticWeightList")
		for i := range w.StaticWeightList {
			entry := &w.StaticWeightList[i]
			target := list.Index(i).Child("targetCluster")
			errs = append(errs, checkAffinity(&entry.TargetCluster, target)...)
			errs = append(errs, checkFieldKeys(entry.TargetCluster.FieldSelector, target.Child("fieldSelector"), p.unlistedPropertyReason)...)
		}
	}
	return errs
}

func checkAffinity(a *v1alpha1.ClusterAffinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := checkLabels(a.LabelSelector, at.Child("labelSelector"))
	errs = append(errs, checkClusterNames(a.ClusterNames, at.Child("clusterNames"))...)
	errs = append(errs, checkClusterNames(a.ExcludeClusters, at.Child("exclude"))...)
	excluded := map[string]bool{}
	for _, n := range a.ExcludeClusters {
		excluded[n] = true
	}
	for i, n := range a.ClusterNames {
		if excluded[n] {
			errs = append(errs, field.Invalid(at.Child("clusterNames").Index(i), n, "is named in exclude too"))
		}
	}
	return append(errs, checkFields(a.FieldSelector, at.Child("fieldSelector"))...)
}

func checkClusterNames(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, n := range names {
		for _, msg := range validation.IsDNS1123Subdomain(n) {
			errs = append(errs, field.Invalid(at.Index(i), n, "is not the name of a cluster: "+msg))
		}
		if seen[n] {
			errs = append(errs, field.Duplicate(at.Index(i), n))
		}
		seen[n] = true
	}
	return errs
}

func checkToleration(t corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		for _, msg := range validation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
		}
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if t.Key == "" {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when there is no key, which tolerates every taint"))
		}
		for _, msg := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty with operator Exists"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect,
			[]corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("tolerationSeconds"), *t.TolerationSeconds, "needs effect NoExecute"))
	}
	return errs
}
