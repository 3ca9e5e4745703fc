package clusterstatus

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// An agent's properties are kept by name, as far as the API would admit them: the hub writes them
// without the schema's checks.
func TestPropertiesAreKept(t *testing.T) {
	long := strings.Repeat("x", v1alpha1.MaxPropertyValue)
	many := map[string]string{}
	var most []v1alpha1.ClusterProperty
	for i := range 100 {
		name := fmt.Sprintf("p%03d", i)
		if many[name] = "v"; i < v1alpha1.MaxProperties {
			most = append(most, v1alpha1.ClusterProperty{Name: name, Value: "v"})
		}
	}
	for name, tc := range map[string]struct {
		reported map[string]string
		want     []v1alpha1.ClusterProperty
	}{
		"none":              {nil, nil},
		"by name":           {map[string]string{"b": "2", "a": "1"}, []v1alpha1.ClusterProperty{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}}},
		"empty value":       {map[string]string{"a": ""}, []v1alpha1.ClusterProperty{{Name: "a"}}},
		"as long as can be": {map[string]string{"a": long}, []v1alpha1.ClusterProperty{{Name: "a", Value: long}}},
		"too long":          {map[string]string{"a": long + "x", strings.Repeat("n", 254): "v", "b": "2"}, []v1alpha1.ClusterProperty{{Name: "b", Value: "2"}}},
		"malformed":         {map[string]string{"": "v", "a": "\xff", "\xff": "v"}, nil},
		"too many":          {many, most},
	} {
		c := &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Properties: []v1alpha1.ClusterProperty{{Name: "old", Value: "v"}}}}
		got := deriveStatus(c, memberFacts{up: true, inventory: &pb.Inventory{KubernetesVersion: "v1.36.3", Properties: tc.reported}}, metav1.Now()).Properties
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: properties %v, want %v", name, got, tc.want)
		}
		if kept := deriveStatus(c, memberFacts{up: true}, metav1.Now()).Properties; len(kept) != 1 {
			t.Errorf("%s: without an inventory the properties are %v", name, kept)
		}
	}
}

// TestWhatTheAgentCannotReadIsSaid: a member that answers is ready, and what its agent counts
// as none for want of an answer is named; one whose agent could not read anything keeps what
// was known of it.
func TestWhatTheAgentCannotReadIsSaid(t *testing.T) {
	c := &v1alpha1.Cluster{}
	c.Name, c.Spec.Accepted = "tokyo", true
	c.Status.KubernetesVersion, c.Status.Nodes = "v1.35.0", v1alpha1.NodeSummary{Total: 3, Ready: 3, Summary: "3/3"}
	s := deriveStatus(c, memberFacts{up: true, fresh: true, answers: true, trouble: "no pods", inventory: &pb.Inventory{KubernetesVersion: "v1.36.3", AgentVersion: "new", NodesTotal: 2}}, metav1.Now())
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ClusterReady); ready.Status != metav1.ConditionTrue || ready.Message != "no pods" || s.Nodes.Total != 2 {
		t.Errorf("%+v of %d nodes", ready, s.Nodes.Total)
	}
	s = deriveStatus(c, memberFacts{up: true, fresh: true, trouble: "it is away", inventory: &pb.Inventory{AgentVersion: "new"}}, metav1.Now())
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ClusterReady); ready.Status != metav1.ConditionFalse || ready.Message != "it is away" ||
		s.Nodes.Total != 3 || s.KubernetesVersion != "v1.35.0" || s.AgentVersion != "new" {
		t.Errorf("%+v; %+v", ready, s)
	}
}
