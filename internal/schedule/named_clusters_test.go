package schedule

import (
	"reflect"
	"testing"
)

// The clusters that a placement names are those of its affinity and of its groups; those that
// it leaves out, and nowhere, are none that it may choose.
func TestNamedClusters(t *testing.T) {
	for text, want := range map[string][]string{
		"{}": nil,
		"{clusterAffinity: {clusterNames: [b, a, b], exclude: [c]}}":                                                              {"a", "b"},
		`{clusterAffinity: {clusterNames: [""]}}`:                                                                                 {},
		"{clusterAffinities: [{affinityName: x, clusterNames: [b]}, {affinityName: y}, {affinityName: z, clusterNames: [a, b]}]}": {"a", "b"},
	} {
		p := parsePlacement(t, text)
		if got := NamedClusters(&p); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s names %q, want %q", text, got, want)
		}
	}
}
