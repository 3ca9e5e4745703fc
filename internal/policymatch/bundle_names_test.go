package policymatch

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestBundleNames(t *testing.T) {
	seen := map[BundleID]string{}
	try := func(c Candidate, sub Subject, plain string) {
		t.Helper()
		id, group := BundleForSubject(c, sub)
		what := fmt.Sprint(c.Source.Kind, c.Source.Name, sub.Key.Namespace, group, c.level >= levelObject, sub.Key.Kind)
		if errs := validation.IsDNS1123Subdomain(id.Name); len(errs) > 0 {
			t.Errorf("%s: %q is no name: %v", what, id.Name, errs)
		}
		if other, taken := seen[id]; taken && other != what {
			t.Errorf("%s and %s are both %s", what, other, id)
		}
		seen[id] = what
		if again, _ := BundleForSubject(c, sub); again != id {
			t.Errorf("%s has two names", what)
		}
		if plain != "" && id.Name != plain {
			t.Errorf("%s is %q, want %q", what, id.Name, plain)
		}
	}
	long := strings.Repeat("a", 253)
	by := func(kind, name string, g v1alpha1.GroupBy) Candidate {
		level := map[string]int{namespacePolicyKind: levelPolicy, clusterPolicyKind: levelClusterPolicy, v1alpha1.SourceAnnotation: levelObject, v1alpha1.SourceNamespaceAnnotation: levelNamespace}[kind]
		return Candidate{Source: v1alpha1.BundleSource{Kind: kind, Name: name}, Spec: &v1alpha1.PropagationSpec{GroupBy: g}, level: level}
	}
	byObject := v1alpha1.GroupBy{Type: v1alpha1.GroupByObject}
	byLabel := v1alpha1.GroupBy{Type: v1alpha1.GroupByLabel, LabelKey: "app"}
	sub := func(kind, name, app string) Subject {
		return Subject{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, Labels: map[string]string{"app": app}}
	}
	cm := sub("ConfigMap", "a", "")
	try(by(namespacePolicyKind, "web", v1alpha1.GroupBy{}), cm, "web")
	try(by(namespacePolicyKind, "web.v1", v1alpha1.GroupBy{}), cm, "web.v1")
	try(by(namespacePolicyKind, long, v1alpha1.GroupBy{}), cm, "")
	try(by(namespacePolicyKind, long[:252]+"b", v1alpha1.GroupBy{}), cm, "")
	try(by(clusterPolicyKind, "web", v1alpha1.GroupBy{}), cm, "")
	try(by(namespacePolicyKind, "web", byLabel), cm, "web")
	try(by(namespacePolicyKind, "web", byLabel), sub("ConfigMap", "a", "x"), "")
	try(by(namespacePolicyKind, "web", byLabel), sub("ConfigMap", "a", "X.y_z"), "")
	try(by(namespacePolicyKind, "web", byObject), cm, "")
	try(by(namespacePolicyKind, "web", byObject), sub("Secret", "a", ""), "")
	try(by(v1alpha1.SourceAnnotation, "a", v1alpha1.GroupBy{}), cm, "")
	try(by(v1alpha1.SourceAnnotation, "a", v1alpha1.GroupBy{}), sub("Secret", "a", ""), "")
	try(by(v1alpha1.SourceAnnotation, "system:a", v1alpha1.GroupBy{}), sub("Role", "system:a", ""), "")
	try(by(v1alpha1.SourceNamespaceAnnotation, "shop", v1alpha1.GroupBy{}), cm, "")
	id, _ := BundleForSubject(by(clusterPolicyKind, "web", v1alpha1.GroupBy{}), cm)
	try(by(namespacePolicyKind, id.Name, v1alpha1.GroupBy{}), cm, "")
}

// The name of an annotated object's Bundle begins with its kind, and the name of a policy's Bundle
// with the policy's name.
func TestBundleNamesBeginWithTheirSource(t *testing.T) {
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	for kind, want := range map[string]string{v1alpha1.SourceAnnotation: "configmap-a-", v1alpha1.SourceNamespaceAnnotation: "a-", clusterPolicyKind: "a-"} {
		if got := bundleName(v1alpha1.BundleSource{Kind: kind, Name: "a"}, "", key); !strings.HasPrefix(got, want) {
			t.Errorf("by %s it is %q, want %q at its begin", kind, got, want)
		}
	}
}

func TestIsOneObject(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	sub := Subject{Key: key, Labels: map[string]string{"team": "web"}}
	policy := v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "p"}
	for by, want := range map[v1alpha1.GroupBy]bool{
		{}: false, {Type: v1alpha1.GroupByObject}: true, {Type: v1alpha1.GroupByLabel, LabelKey: "team"}: false,
	} {
		_, group := BundleForSubject(Candidate{Source: policy, Spec: &v1alpha1.PropagationSpec{GroupBy: by}}, sub)
		if got := IsSingleObjectBundle(policy, group); got != want {
			t.Errorf("grouped by %+v, the Bundle is one object: %v, want %v", by, got, want)
		}
	}
	if !IsSingleObjectBundle(v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web"}, "") {
		t.Error("the Bundle of an annotated object is not one object")
	}
}
