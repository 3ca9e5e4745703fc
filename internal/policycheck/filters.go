package policycheck

import (
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/quantity"
)

// checkFilters checks the filters of a placement that are not in an affinity, and which properties all of
// them read.
func checkFilters(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	errs := checkClusterSetNames(pl.ClusterSets, at.Child("clusterSets"))
	errs = append(errs, checkCEL(pl.CELSelector, at.Child("celSelector"), refused)...)
	errs = append(errs, checkAPIs(pl.APIs, at.Child("apis"))...)
	errs = append(errs, checkAffinityGroups(pl, refused, at)...)
	errs = append(errs, checkWorkloadAffinity(pl.WorkloadAffinity, at.Child("workloadAffinity"))...)
	if pl.ClusterAffinity != nil {
		errs = append(errs, checkFieldKeys(pl.ClusterAffinity.FieldSelector, at.Child("clusterAffinity", "fieldSelector"), refused)...)
	}
	return errs
}

// checkWorkloadAffinity checks the label keys that name groups of Bundles.
func checkWorkloadAffinity(a *v1alpha1.WorkloadAffinity, at *field.Path) (errs field.ErrorList) {
	if a == nil {
		return nil
	}
	if a.Affinity == nil && a.AntiAffinity == nil {
		return field.ErrorList{field.Required(at, "give affinity or antiAffinity")}
	}
	check := func(term *v1alpha1.WorkloadAffinityTerm, at *field.Path) {
		switch at = at.Child("groupByLabelKey"); {
		case term == nil:
		case term.GroupByLabelKey == "":
			errs = append(errs, field.Required(at, "the key of a label of the templates"))
		default:
			for _, msg := range validation.IsQualifiedName(term.GroupByLabelKey) {
				errs = append(errs, field.Invalid(at, term.GroupByLabelKey, "is not the key of a label: "+msg))
			}
		}
	}
	check(a.Affinity, at.Child("affinity"))
	check(a.AntiAffinity, at.Child("antiAffinity"))
	if len(errs) == 0 && a.Affinity != nil && a.AntiAffinity != nil && a.Affinity.GroupByLabelKey == a.AntiAffinity.GroupByLabelKey {
		errs = append(errs, field.Invalid(at.Child("antiAffinity", "groupByLabelKey"), a.AntiAffinity.GroupByLabelKey, "is the key of affinity, too: no cluster could be chosen beside another member"))
	}
	return errs
}

// checkAffinityGroups checks the groups of fall-back and of overflow.
func checkAffinityGroups(pl *v1alpha1.PlacementSpec, refused PropertyRefusal, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	in := at.Child("clusterAffinities")
	if pl.ClusterAffinity != nil && len(pl.ClusterAffinities) > 0 {
		errs = append(errs, field.Forbidden(in, "clusterAffinity and clusterAffinities exclude each other: give one of them"))
	}
	for i := range pl.ClusterAffinities {
		g, one := &pl.ClusterAffinities[i], in.Index(i)
		errs = append(errs, checkAffinity(&g.ClusterAffinity, one)...)
		errs = append(errs, checkFieldKeys(g.FieldSelector, one.Child("fieldSelector"), refused)...)
		errs = append(errs, checkClusterSetNames(g.ClusterSets, one.Child("clusterSets"))...)
		errs = append(errs, checkCEL(g.CELSelector, one.Child("celSelector"), refused)...)
	}
	if pl.Failback != nil && len(pl.ClusterAffinities) < 2 {
		errs = append(errs, field.Forbidden(at.Child("failback"), "there is nothing to go back to: it needs two or more clusterAffinities"))
	}
	if hold, back := pl.Failback.HoldDuration(); hold < 0 || hold > 24*time.Hour {
		errs = append(errs, field.Invalid(at.Child("failback", "holdTime"), hold.String(), "must be from 0s to 24h"))
	} else if !back && pl.Failback != nil && pl.Failback.HoldTime != nil {
		errs = append(errs, field.Forbidden(at.Child("failback", "holdTime"), "is for policy WhenHealthy"))
	}
	return append(errs, checkOverflow(pl, at)...)
}

// checkOverflow checks that there is something to overflow to.
func checkOverflow(pl *v1alpha1.PlacementSpec, at *field.Path) field.ErrorList {
	if pl.ReplicaScheduling.Overflow != v1alpha1.OverflowAllow || len(pl.ClusterAffinities) > 1 || pl.MaxClusters > 0 || len(pl.SpreadConstraints) > 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("replicaScheduling", "overflow"), "all fitting clusters are chosen anyway: it needs two or more clusterAffinities, maxClusters or spreadConstraints")}
}

func checkClusterSetNames(names []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, n := range names {
		for _, msg := range validation.IsDNS1123Subdomain(n) {
			errs = append(errs, field.Invalid(at.Index(i), n, "is not the name of a cluster set: "+msg))
		}
	}
	return errs
}

// CheckTarget checks the target of an override rule: what a placement selects by, but for properties.
func CheckTarget(t *v1alpha1.ClusterTarget, at *field.Path) field.ErrorList {
	if t == nil {
		return nil
	}
	errs := checkAffinity(&t.ClusterAffinity, at)
	errs = append(errs, checkFieldKeys(t.FieldSelector, at.Child("fieldSelector"), refuseAllProperties)...)
	errs = append(errs, checkClusterSetNames(t.ClusterSets, at.Child("clusterSets"))...)
	return append(errs, checkCEL(t.CELSelector, at.Child("celSelector"), refuseAllProperties)...)
}

// checkCEL compiles the expression, as schedule does, and checks the properties that it reads:
// refused returns why one is not to be used.
func checkCEL(text string, at *field.Path, refused PropertyRefusal) field.ErrorList {
	if text == "" {
		return nil
	}
	sel, err := expr.CompileClusterSelector(text)
	if err != nil {
		return field.ErrorList{field.Invalid(at, text, err.Error())}
	}
	var errs field.ErrorList
	for _, key := range sel.PropertyNames() {
		if why := refused(key); why != "" {
			errs = append(errs, field.Invalid(at, key, why))
		}
	}
	return errs
}

var kindForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// IsKindName reports whether a text has the form of the name of one kind.
func IsKindName(text string) bool { return kindForm.MatchString(text) }

func checkAPIs(list []v1alpha1.ServedAPI, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, api := range list {
		gv, err := schema.ParseGroupVersion(api.APIVersion)
		if err != nil || gv.Version == "" {
			errs = append(errs, field.Invalid(at.Index(i).Child("apiVersion"), api.APIVersion, "must be GROUP/VERSION, or VERSION for the core group"))
		}
		if api.Kind != "" && !IsKindName(api.Kind) {
			errs = append(errs, field.Invalid(at.Index(i).Child("kind"), api.Kind, "must be the name of one kind, such as Deployment"))
		}
	}
	return errs
}

// checkFieldKeys refuses keys of fields that are no fields of a Cluster's spec; refused returns why one
// is not to be used.
func checkFieldKeys(s *v1alpha1.FieldSelector, at *field.Path, refused PropertyRefusal) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	for i, r := range s.MatchExpressions {
		if atoll.IsClusterSpecField(r.Key) {
			continue
		}
		if why := refused(r.Key); why != "" {
			errs = append(errs, field.Invalid(at.Child("matchExpressions").Index(i).Child("key"), r.Key, why))
		}
	}
	return errs
}

// checkFields refuses requirements that are malformed, or contradict each other.
func checkFields(s *v1alpha1.FieldSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	keys := map[string]*keyConstraint{}
	for i, r := range s.MatchExpressions {
		one := at.Child("matchExpressions").Index(i)
		c := keys[r.Key]
		if c == nil {
			c = &keyConstraint{}
			keys[r.Key] = c
		}
		errs = append(errs, checkValues(r, one)...)
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			c.restrictTo(r.Values)
		case corev1.NodeSelectorOpNotIn:
			c.not = append(c.not, r.Values...)
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			c.exists = true
		case corev1.NodeSelectorOpDoesNotExist:
			c.absent = true
		default:
			errs = append(errs, field.NotSupported(one.Child("operator"), r.Operator, []corev1.NodeSelectorOperator{
				corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists,
				corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
			}))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return findContradictions(keys, at)
}

// checkValues checks the values that an operator takes.
func checkValues(r v1alpha1.FieldRequirement, at *field.Path) field.ErrorList {
	at = at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return field.ErrorList{field.Required(at, fmt.Sprintf("operator %s needs at least one", r.Operator))}
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return field.ErrorList{field.Forbidden(at, fmt.Sprintf("operator %s takes none", r.Operator))}
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return field.ErrorList{field.Required(at, fmt.Sprintf("operator %s needs exactly one", r.Operator))}
		}
		if _, err := quantity.Parse(r.Values[0]); err != nil {
			return field.ErrorList{field.Invalid(at.Index(0), r.Values[0], "must be a quantity, such as 10 or 64Gi")}
		}
	}
	return nil
}
