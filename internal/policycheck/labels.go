package policycheck

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckLabelSelector refuses selectors that are malformed, select everything or nothing.
func CheckLabelSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
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

// checkClusterNames refuses malformed names of Clusters, and a name that stands twice.
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
