package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// fakePolicies has policies by their names, all of namespace shop or without one.
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
	for name, c := range map[string]struct{ kind, namespace, own, dependsOn, want string }{
		"direct":           {"PropagationPolicy", "shop", "web", "[{name: db}]", "spec.dependsOn[0]: Forbidden: the policies would depend on each other: PropagationPolicy web on PropagationPolicy db on PropagationPolicy web"},
		"over two":         {"PropagationPolicy", "shop", "web", "[{name: api, scope: All}]", "PropagationPolicy web on PropagationPolicy api on PropagationPolicy db on PropagationPolicy web"},
		"itself":           {"PropagationPolicy", "shop", "web", "[{name: web}]", "spec.dependsOn[0]: Forbidden"},
		"another name":     {"PropagationPolicy", "shop", "shop", "[{name: api}]", ""},
		"of a namespace":   {"PropagationPolicy", "other", "web", "[{name: db}]", ""},
		"cluster policies": {"ClusterPropagationPolicy", "", "operator", "[{name: crds}]", "ClusterPropagationPolicy operator on ClusterPropagationPolicy crds on ClusterPropagationPolicy operator"},
		"the wrong way":    {"ClusterPropagationPolicy", "", "crds", "[{kind: PropagationPolicy, name: db}]", "spec.dependsOn[0].kind: Forbidden"},
		"to a cluster's":   {"PropagationPolicy", "shop", "operator", "[{kind: ClusterPropagationPolicy, name: crds}]", ""},
	} {
		u := &unstructured.Unstructured{}
		text := "apiVersion: atoll.dev/v1alpha1\nkind: " + c.kind + "\nmetadata: {name: " + c.own + "}\nspec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: c}], dependsOn: " + c.dependsOn + "}"
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: c.kind}
		a := admission.NewAttributesRecord(u, nil, gvk, c.namespace, c.own, gvk.GroupVersion().WithResource("policies"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
		err := newGrantingPlugin(Hub{Policies: policies}, "", "ann list configmaps "+c.namespace+"/").validatePropagation(t.Context(), a)
		if c.want == "" && err != nil && strings.Contains(err.Error(), "dependsOn") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}
