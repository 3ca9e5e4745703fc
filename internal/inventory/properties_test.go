package inventory

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// What an agent reports as properties is kept by name, as far as the API would admit it:
// the hub writes it without the schema's checks.
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
		got := derive(c, facts{up: true, inventory: &pb.Inventory{Properties: tc.reported}}, metav1.Now()).Properties
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: properties %v, want %v", name, got, tc.want)
		}
		if kept := derive(c, facts{up: true}, metav1.Now()).Properties; len(kept) != 1 {
			t.Errorf("%s: without an inventory the properties are %v", name, kept)
		}
	}
}
