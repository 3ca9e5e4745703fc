package claim

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
		id, group := BundleFor(c, sub)
		what := fmt.Sprint(c.Source.Kind, c.Source.Name, sub.Key.Namespace, group, c.level >= levelObject, sub.Key.Kind)
		if errs := validation.IsDNS1123Subdomain(id.Name); len(errs) > 0 {
			t.Errorf("%s: %q is no name: %v", what, id.Name, errs)
		}
		if other, taken := seen[id]; taken && other != what {
			t.Errorf("%s and %s are both %s", what, other, id)
		}
		seen[id] = what
		if again, _ := BundleFor(c, sub); again != id {
			t.Errorf("%s has two names", what)
		}
		if plain != "" && id.Name != plain {
			t.Errorf("%s is %q, want %q", what, id.Name, plain)
		}
	}
	long := strings.Repeat("a", 253)
	by := func(kind, name string, g v1alpha1.GroupBy) Candidate {
		level := map[string]int{ppKind: levelPolicy, cppKind: levelClusterPolicy, v1alpha1.SourceAnnotation: levelObject, v1alpha1.SourceNamespaceAnnotation: levelNamespace}[kind]
		return Candidate{Source: v1alpha1.BundleSource{Kind: kind, Name: name}, Spec: &v1alpha1.PropagationSpec{GroupBy: g}, level: level}
	}
	byObject := v1alpha1.GroupBy{Type: v1alpha1.GroupByObject}
	byLabel := v1alpha1.GroupBy{Type: v1alpha1.GroupByLabel, LabelKey: "app"}
	sub := func(kind, name, app string) Subject {
		return Subject{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, Labels: map[string]string{"app": app}}
	}
	cm := sub("ConfigMap", "a", "")
	try(by(ppKind, "web", v1alpha1.GroupBy{}), cm, "web")
	try(by(ppKind, "web.v1", v1alpha1.GroupBy{}), cm, "web.v1")
	try(by(ppKind, long, v1alpha1.GroupBy{}), cm, "")
	try(by(ppKind, long[:252]+"b", v1alpha1.GroupBy{}), cm, "")
	try(by(cppKind, "web", v1alpha1.GroupBy{}), cm, "")
	try(by(ppKind, "web", byLabel), cm, "web")
	try(by(ppKind, "web", byLabel), sub("ConfigMap", "a", "x"), "")
	try(by(ppKind, "web", byLabel), sub("ConfigMap", "a", "X.y_z"), "")
	try(by(ppKind, "web", byObject), cm, "")
	try(by(ppKind, "web", byObject), sub("Secret", "a", ""), "")
	try(by(v1alpha1.SourceAnnotation, "a", v1alpha1.GroupBy{}), cm, "")
	try(by(v1alpha1.SourceAnnotation, "a", v1alpha1.GroupBy{}), sub("Secret", "a", ""), "")
	try(by(v1alpha1.SourceAnnotation, "system:a", v1alpha1.GroupBy{}), sub("Role", "system:a", ""), "")
	try(by(v1alpha1.SourceNamespaceAnnotation, "shop", v1alpha1.GroupBy{}), cm, "")
	id, _ := BundleFor(by(cppKind, "web", v1alpha1.GroupBy{}), cm)
	try(by(ppKind, id.Name, v1alpha1.GroupBy{}), cm, "")
}
