package clustermatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

var oslo = atoll.ClusterView{
	Name: "oslo", Labels: map[string]string{"env": "prod"}, Region: "eu-north", Properties: map[string]string{"gpus": "8"},
}

func TestMatchesField(t *testing.T) {
	for name, x := range map[string]struct {
		key      string
		operator corev1.NodeSelectorOperator
		values   []string
		want     bool
	}{
		"in":                         {"region", corev1.NodeSelectorOpIn, []string{"us", "eu-north"}, true},
		"not in the list":            {"region", corev1.NodeSelectorOpIn, []string{"us"}, false},
		"not in":                     {"region", corev1.NodeSelectorOpNotIn, []string{"us"}, true},
		"not in, but is":             {"region", corev1.NodeSelectorOpNotIn, []string{"eu-north"}, false},
		"an empty field is in no":    {"zone", corev1.NodeSelectorOpIn, []string{"a"}, false},
		"exists":                     {"gpus", corev1.NodeSelectorOpExists, nil, true},
		"exists not":                 {"zone", corev1.NodeSelectorOpExists, nil, false},
		"does not exist":             {"zone", corev1.NodeSelectorOpDoesNotExist, nil, true},
		"exists, against the rule":   {"region", corev1.NodeSelectorOpDoesNotExist, nil, false},
		"greater":                    {"gpus", corev1.NodeSelectorOpGt, []string{"7"}, true},
		"equal is not greater":       {"gpus", corev1.NodeSelectorOpGt, []string{"8"}, false},
		"less":                       {"gpus", corev1.NodeSelectorOpLt, []string{"8500m"}, true},
		"equal is not less":          {"gpus", corev1.NodeSelectorOpLt, []string{"8"}, false},
		"an empty field is not less": {"memory", corev1.NodeSelectorOpLt, []string{"1"}, false},
		"a text is not less":         {"region", corev1.NodeSelectorOpLt, []string{"1"}, false},
		"greater than nothing":       {"gpus", corev1.NodeSelectorOpGt, nil, false},
		"greater than two values":    {"gpus", corev1.NodeSelectorOpGt, []string{"7", "6"}, false},
		"less than a text":           {"gpus", corev1.NodeSelectorOpLt, []string{"many"}, false},
		"one of two zones":           {"zones", "In", []string{"b", "c"}, true},
		"neither of two zones":       {"zones", "In", []string{"c"}, false},
		"not in, but one zone is":    {"zones", "NotIn", []string{"b", "c"}, false},
		"not in, for both zones":     {"zones", "NotIn", []string{"c"}, true},
		"zones exist":                {"zones", "Exists", nil, true},
		"zones exist, against it":    {"zones", "DoesNotExist", nil, false},
		"unknown operator":           {"region", "Like", []string{"eu"}, false},
	} {
		of := &oslo
		if x.key == "zones" { // the field zone of a cluster that has several
			x.key, of = "zone", &atoll.ClusterView{Name: "wide", Zones: []string{"a", "b"}}
		}
		r := &v1alpha1.FieldRequirement{Key: x.key, Operator: x.operator, Values: x.values}
		if got := MatchesField(r, of); got != x.want {
			t.Errorf("%s: %t, want %t", name, got, x.want)
		}
		if x.want {
			continue
		}
		if reason := DescribeFieldMismatch(r, of); !strings.Contains(reason, "field "+x.key) {
			t.Errorf("%s: the reason %q does not name the field", name, reason)
		}
	}
}

func TestMatchesAffinity(t *testing.T) {
	for name, x := range map[string]struct {
		affinity *v1alpha1.ClusterAffinity
		want     string
	}{
		"none":     {nil, ""},
		"named":    {&v1alpha1.ClusterAffinity{ClusterNames: []string{"lima", "oslo"}}, ""},
		"unnamed":  {&v1alpha1.ClusterAffinity{ClusterNames: []string{"lima"}}, "clusterNames"},
		"excluded": {&v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}, ExcludeClusters: []string{"oslo"}}, "exclude"},
		"labels":   {&v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}, ""},
		"other labels": {
			&v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "test"}}}, "labels",
		},
		"malformed labels": {
			&v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "a b"}}}, "malformed",
		},
		"fields": {
			&v1alpha1.ClusterAffinity{FieldSelector: &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{
				{Key: "region", Operator: corev1.NodeSelectorOpExists}, {Key: "zone", Operator: corev1.NodeSelectorOpExists},
			}}}, "zone",
		},
	} {
		ok, reason := MatchesAffinity(x.affinity, oslo)
		if ok != (x.want == "") || !strings.Contains(reason, x.want) {
			t.Errorf("%s: %t, %q, want %q", name, ok, reason, x.want)
		}
	}
}
