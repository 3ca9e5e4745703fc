package policymatch

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// selectorPrefix begins an annotation that chooses clusters by their labels.
const selectorPrefix = "selector:"

// ParseClustersAnnotation parses the value of the annotation atoll.dev/clusters: names of clusters,
// "*" for all, "selector: LABELS", or nothing for no cluster. The error describes an invalid value.
func ParseClustersAnnotation(value string) (v1alpha1.PlacementSpec, error) {
	p := v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Duplicated}}
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		p.ClusterAffinity = atoll.NowherePlacement().ClusterAffinity
		return p, nil
	case value == "*":
		return p, nil
	case strings.HasPrefix(value, selectorPrefix):
		text := strings.TrimSpace(strings.TrimPrefix(value, selectorPrefix))
		if text == "" {
			return p, fmt.Errorf("%q selects nothing in particular: write \"*\" for all clusters", value)
		}
		sel, err := parseLabelSelector(text)
		if err != nil {
			return p, fmt.Errorf("%q is not a label selector: %w", text, err)
		}
		p.ClusterAffinity = &v1alpha1.ClusterAffinity{LabelSelector: sel}
		return p, nil
	}
	seen := map[string]bool{}
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			return p, fmt.Errorf("%q is not the name of a cluster: %s", name, strings.Join(errs, "; "))
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	p.ClusterAffinity = &v1alpha1.ClusterAffinity{ClusterNames: names}
	return p, nil
}

// parseLabelSelector is metav1.ParseToLabelSelector, which keeps only the last of several values
// required of one key.
func parseLabelSelector(text string) (*metav1.LabelSelector, error) {
	sel, err := metav1.ParseToLabelSelector(text)
	if err != nil {
		return nil, err
	}
	all, err := labels.ParseToRequirements(text)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		equal := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals
		if equal && !r.Values().Has(sel.MatchLabels[r.Key()]) {
			sel.MatchExpressions = append(sel.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: r.Key(), Operator: metav1.LabelSelectorOpIn, Values: r.Values().UnsortedList(),
			})
		}
	}
	return sel, nil
}

// annotationSpec returns the spec that an annotation stands for: its placement with the API's
// defaults.
func annotationSpec(p v1alpha1.PlacementSpec) v1alpha1.PropagationSpec {
	budget := intstr.FromString("10%")
	return v1alpha1.PropagationSpec{
		Placement:          p,
		PropagateDeps:      true,
		ConflictResolution: v1alpha1.ConflictAbort,
		GroupBy:            v1alpha1.GroupBy{Type: v1alpha1.GroupByNamespace},
		Removal:            v1alpha1.Removal{Mode: v1alpha1.RemoveDelete, Budget: &budget},
		WhenUnfit:          v1alpha1.UnfitKeep,
	}
}

// ClustersAnnotation returns the annotation that places an object or a namespace's objects.
func ClustersAnnotation(annotations map[string]string) (string, bool) {
	v, ok := annotations[atoll.AnnotationClusters]
	return v, ok
}
