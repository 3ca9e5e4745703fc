package admission

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// fakePolicies has policies as NAMESPACE/NAME.
type fakePolicies map[string][]v1alpha1.PolicyDependency

func (f fakePolicies) GetPropagationPolicy(namespace, name string) (*v1alpha1.PropagationPolicy, bool) {
	list, ok := f[namespace+"/"+name]
	return &v1alpha1.PropagationPolicy{Spec: v1alpha1.PropagationSpec{DependsOn: list}}, ok
}

func (f fakePolicies) GetClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool) {
	list, ok := f["/"+name]
	return &v1alpha1.ClusterPropagationPolicy{Spec: v1alpha1.PropagationSpec{DependsOn: list}}, ok
}

// Dependencies that would lead back to the policy are refused at the write that would close the circle.
func TestACircleOfDependenciesIsRefused(t *testing.T) {
	policies := fakePolicies{
		"shop/db": {{Name: "web"}}, "shop/api": {{Name: "db"}}, "/crds": {{Name: "operator"}}, "other/db": nil,
	}
	for name, c := range map[string]struct{ namespace, own, dependsOn, want string }{
		"direct":           {"shop", "web", "[{name: db}]", "spec.dependsOn[0]: Forbidden: the policies would depend on each other: PropagationPolicy web on PropagationPolicy db on PropagationPolicy web"},
		"over two":         {"shop", "web", "[{name: api, scope: All}]", "PropagationPolicy web on PropagationPolicy api on PropagationPolicy db on PropagationPolicy web"},
		"itself":           {"shop", "web", "[{name: web}]", "spec.dependsOn[0]: Forbidden"},
		"another name":     {"shop", "shop", "[{name: api}]", ""},
		"of a namespace":   {"other", "web", "[{name: db}]", ""},
		"cluster policies": {"", "operator", "[{name: crds}]", "ClusterPropagationPolicy operator on ClusterPropagationPolicy crds on ClusterPropagationPolicy operator"},
		"the wrong way":    {"", "crds", "[{kind: PropagationPolicy, name: db}]", "spec.dependsOn[0].kind: Forbidden"},
		"to a cluster's":   {"shop", "operator", "[{kind: ClusterPropagationPolicy, name: crds}]", ""},
	} {
		u := policyOf(t, c.namespace, "", "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: c}], dependsOn: "+c.dependsOn)
		u.SetName(c.own)
		err := newGrantingPlugin(Hub{Policies: policies}, "", "ann list configmaps "+c.namespace+"/").validatePropagation(t.Context(), requestOf("ann", u, nil))
		if c.want == "" && err != nil && strings.Contains(err.Error(), "dependsOn") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}

// A circle that two writes at one time made refuses no other edit of its policies.
func TestACircleRefusesNoOtherEdit(t *testing.T) {
	policies := fakePolicies{"shop/db": {{Name: "p"}}}
	const circle = "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: c}], dependsOn: [{name: db}]"
	plugin := newGrantingPlugin(Hub{Policies: policies}, "ann get configmaps shop/c")
	before, now := policyOf(t, "shop", "", circle), policyOf(t, "shop", "", circle+", suspension: {dispatching: true}")
	if err := plugin.validatePropagation(t.Context(), requestOf("ann", now, before)); err != nil {
		t.Errorf("an edit of another field is refused with %v", err)
	}
	if err := plugin.validatePropagation(t.Context(), requestOf("ann", before, nil)); err == nil || !strings.Contains(err.Error(), "depend on each other") {
		t.Errorf("the circle itself is refused with %v", err)
	}
}
