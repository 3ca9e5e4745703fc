package clustermatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// MatchesAffinity reports whether the cluster passes the affinity (nil: always), and
// if not, which part refuses it. A malformed selector refuses, with its error;
// admission keeps those out.
func MatchesAffinity(a *v1alpha1.ClusterAffinity, c atoll.ClusterView) (ok bool, reason string) {
	if a == nil {
		return true, ""
	}
	if slices.Contains(a.ExcludeClusters, c.Name) {
		return false, "named in exclude"
	}
	if len(a.ClusterNames) > 0 && !slices.Contains(a.ClusterNames, c.Name) {
		return false, "not named in clusterNames"
	}
	if a.LabelSelector != nil {
		sel, err := metav1.LabelSelectorAsSelector(a.LabelSelector)
		if err != nil {
			return false, fmt.Sprintf("labelSelector is malformed: %v", err)
		}
		if !sel.Matches(labels.Set(c.Labels)) {
			return false, fmt.Sprintf("labels do not match %q", sel)
		}
	}
	if a.FieldSelector != nil {
		for i := range a.FieldSelector.MatchExpressions {
			if r := &a.FieldSelector.MatchExpressions[i]; !MatchesField(r, &c) {
				return false, DescribeFieldMismatch(r, &c)
			}
		}
	}
	return true, ""
}

// MatchesField reports whether the cluster meets a requirement on one field. A field that
// is empty, or a property that is not there, is in no list and exists not; it is
// neither greater nor less than anything. In needs one of several zones in the list, and NotIn none.
func MatchesField(r *v1alpha1.FieldRequirement, c *atoll.ClusterView) bool {
	if several := c.ListFieldValues(r.Key); len(several) > 0 {
		return matchesSeveral(r, several)
	}
	return matchesValue(r, c.FieldValue(r.Key))
}

// matchesSeveral reports whether a field with several values meets a requirement.
func matchesSeveral(r *v1alpha1.FieldRequirement, values []string) bool {
	isMet := func(v string) bool { return matchesValue(r, v) }
	if r.Operator == corev1.NodeSelectorOpNotIn {
		return !slices.ContainsFunc(values, func(v string) bool { return !isMet(v) })
	}
	return slices.ContainsFunc(values, isMet)
}

// matchesValue reports whether a value meets a requirement.
func matchesValue(r *v1alpha1.FieldRequirement, v string) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpNotIn:
		return !slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpExists:
		return v != ""
	case corev1.NodeSelectorOpDoesNotExist:
		return v == ""
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return false
		}
		have, err := quantity.Parse(v) // an error for an empty field
		if err != nil {
			return false
		}
		bound, err := quantity.Parse(r.Values[0])
		if err != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have.Cmp(bound) > 0
		}
		return have.Cmp(bound) < 0
	}
	return false
}

// DescribeFieldMismatch names the requirement that refused the cluster.
func DescribeFieldMismatch(r *v1alpha1.FieldRequirement, c *atoll.ClusterView) string {
	v := cmp.Or(strings.Join(c.ListFieldValues(r.Key), ","), c.FieldValue(r.Key))
	switch r.Operator {
	case corev1.NodeSelectorOpExists:
		return fmt.Sprintf("field %s is not set", r.Key)
	case corev1.NodeSelectorOpDoesNotExist:
		return fmt.Sprintf("field %s is set, to %q", r.Key, v)
	}
	return fmt.Sprintf("field %s=%q is not %s %q", r.Key, v, r.Operator, r.Values)
}
