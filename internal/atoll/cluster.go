package atoll

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// ClusterView is what selectors see of a Cluster: what the hub set, nothing that
// the agent reports.
type ClusterView struct {
	Name     string
	Labels   map[string]string
	Region   string
	Zone     string
	Provider string
}

// ViewOf a Cluster. The labels are shared with it.
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
		for _, r := range a.FieldSelector.MatchExpressions {
			if v := c.field(r.Key); slices.Contains(r.Values, v) != (r.Operator == corev1.NodeSelectorOpIn) {
				return false, fmt.Sprintf("field %s=%q is not %s %q", r.Key, v, r.Operator, r.Values)
			}
		}
	}
	return true, ""
}

func (c ClusterView) field(key string) string {
	switch key {
	case "region":
		return c.Region
	case "zone":
		return c.Zone
	case "provider":
		return c.Provider
	}
	return ""
}
