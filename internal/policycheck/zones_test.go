package policycheck

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestCheckZones(t *testing.T) {
	for name, x := range map[string]struct {
		spec v1alpha1.ClusterSpec
		want string
	}{
		"none":           {},
		"zone":           {v1alpha1.ClusterSpec{Zone: "a"}, ""},
		"zones":          {v1alpha1.ClusterSpec{Zones: []string{"a", "b"}}, ""},
		"both":           {v1alpha1.ClusterSpec{Zone: "a", Zones: []string{"a", "b"}}, `spec.zones: Invalid value: ["a","b"]: zone is "a": give zone or zones`},
		"no list at all": {v1alpha1.ClusterSpec{Zone: "a", Zones: []string{}}, ""},
	} {
		got := ""
		if errs := CheckZones(&x.spec, field.NewPath("spec")); len(errs) > 0 {
			got = errs[0].Error()
		}
		if (got == "") != (x.want == "") || !strings.HasPrefix(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}
