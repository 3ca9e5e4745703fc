package atoll

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// ClusterView is what selectors see of a Cluster: what the hub set, and of what the
// agent reports the properties that the hub's admin listed.
type ClusterView struct {
	Name     string
	Labels   map[string]string
	Region   string
	Zone     string
	Provider string
	// Sets: names of the ClusterSets that it is in, sorted.
	Sets []string
	// Properties that are listed; nil where nothing that agents report counts.
	Properties map[string]string
}

// ViewOf a Cluster, without properties, and without sets, which the object alone does not
// tell. The labels are shared with it.
func ViewOf(c *v1alpha1.Cluster) ClusterView {
	return ClusterView{
		Name: c.Name, Labels: c.Labels,
		Region: c.Spec.Region, Zone: c.Spec.Zone, Provider: c.Spec.Provider,
	}
}

// MatchAffinity tells whether the cluster passes the affinity (nil: always), and
// if not, which part refuses it. A malformed selector refuses, with its error;
// admission keeps those out.
func MatchAffinity(a *v1alpha1.ClusterAffinity, c ClusterView) (ok bool, reason string) {
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
			if r := &a.FieldSelector.MatchExpressions[i]; !MatchField(r, &c) {
				return false, FieldReason(r, &c)
			}
		}
	}
	return true, ""
}

// MatchField tells whether the cluster meets a requirement on one field. A field that
// is empty, or a property that is not there, is in no list and exists not; it is
// neither greater nor less than anything.
func MatchField(r *v1alpha1.FieldRequirement, c *ClusterView) bool {
	v := c.Field(r.Key)
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
		if v == "" || len(r.Values) != 1 {
			return false
		}
		have, err := ParseQuantity(v)
		if err != nil {
			return false
		}
		bound, err := ParseQuantity(r.Values[0])
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

// FieldReason says which requirement refused the cluster.
func FieldReason(r *v1alpha1.FieldRequirement, c *ClusterView) string {
	v := c.Field(r.Key)
	switch r.Operator {
	case corev1.NodeSelectorOpExists:
		return fmt.Sprintf("field %s is not set", r.Key)
	case corev1.NodeSelectorOpDoesNotExist:
		return fmt.Sprintf("field %s is set, to %q", r.Key, v)
	}
	return fmt.Sprintf("field %s=%q is not %s %q", r.Key, v, r.Operator, r.Values)
}

// SpecField tells whether the key of a field requirement is a field of the Cluster's
// spec; all others are properties.
func SpecField(key string) bool { return key == "region" || key == "zone" || key == "provider" }

// Field of the cluster: region, zone, provider or a listed property; empty when it has
// none.
func (c *ClusterView) Field(key string) string {
	switch key {
	case "region":
		return c.Region
	case "zone":
		return c.Zone
	case "provider":
		return c.Provider
	}
	return c.Properties[key]
}
