package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// A suspension that could not be honoured is refused by the path of its field.
func TestFieldsOfASuspension(t *testing.T) {
	named := func(names ...string) *v1alpha1.SuspendedClusters {
		return &v1alpha1.SuspendedClusters{ClusterNames: names}
	}
	many := make([]string, maxSuspendedClusters+1)
	for i := range many {
		many[i] = fmt.Sprint("c", i)
	}
	for name, c := range map[string]struct {
		is      *v1alpha1.Suspension
		refused string
	}{
		"none":                    {nil, ""},
		"dispatching":             {&v1alpha1.Suspension{Dispatching: true, Scheduling: true}, ""},
		"clusters":                {&v1alpha1.Suspension{DispatchingOnClusters: named("oslo-1", "oslo-2"), Scheduling: true}, ""},
		"both":                    {&v1alpha1.Suspension{Dispatching: true, DispatchingOnClusters: named("oslo-1")}, "spec.suspension.dispatchingOnClusters: Forbidden"},
		"no name":                 {&v1alpha1.Suspension{DispatchingOnClusters: named()}, "spec.suspension.dispatchingOnClusters.clusterNames: Required"},
		"an empty name":           {&v1alpha1.Suspension{DispatchingOnClusters: named("oslo-1", "")}, "spec.suspension.dispatchingOnClusters.clusterNames[1]: Invalid"},
		"a name of no Cluster":    {&v1alpha1.Suspension{DispatchingOnClusters: named("Oslo_1")}, "spec.suspension.dispatchingOnClusters.clusterNames[0]: Invalid"},
		"a name twice":            {&v1alpha1.Suspension{DispatchingOnClusters: named("a", "b", "a")}, "spec.suspension.dispatchingOnClusters.clusterNames[2]: Duplicate"},
		"as many as there may be": {&v1alpha1.Suspension{DispatchingOnClusters: named(many[1:]...)}, ""},
		"more":                    {&v1alpha1.Suspension{DispatchingOnClusters: named(many...)}, "spec.suspension.dispatchingOnClusters.clusterNames: Too many"},
	} {
		got := fmt.Sprint(checkSuspension(c.is, field.NewPath("spec", "suspension")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}
