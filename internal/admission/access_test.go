package admission

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/internal/atoll"
)

// The right to read an object is that of its resource: as the hub serves the kind, or as kinds are
// usually named where the hub does not serve it yet.
func TestRightsAreOfTheResourceThatTheHubServes(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "x.dev", Version: "v1"}})
	served := schema.GroupVersionKind{Group: "x.dev", Version: "v1", Kind: "Ox"}
	mapper.AddSpecific(served, served.GroupVersion().WithResource("oxen"), served.GroupVersion().WithResource("ox"), meta.RESTScopeNamespace)
	root := schema.GroupVersionKind{Group: "x.dev", Version: "v1", Kind: "Farm"}
	mapper.AddSpecific(root, root.GroupVersion().WithResource("farms"), root.GroupVersion().WithResource("farm"), meta.RESTScopeRoot)
	p := New(Options{Own: func(user.Info) bool { return false }})
	p.SetRESTMapper(mapper)
	allowed, answer := "", authorizer.DecisionAllow
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb()+" "+a.GetResource()+"."+a.GetAPIGroup()+" "+a.GetNamespace()+"/"+a.GetName() == allowed {
			return answer, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	alice := &user.DefaultInfo{Name: "alice"}
	key := func(kind string) atoll.ItemKey {
		return atoll.ItemKey{Group: "x.dev", Kind: kind, Namespace: "shop", Name: "one"}
	}
	for kind, resource := range map[string]string{"Ox": "oxen", "Goat": "goats"} {
		allowed, answer = "get "+resource+".x.dev shop/one", authorizer.DecisionAllow
		if !p.MayGet(t.Context(), alice, key(kind)) {
			t.Errorf("a user that may get %s may not get a %s", resource, kind)
		}
		if answer = authorizer.DecisionDeny; p.MayGet(t.Context(), alice, key(kind)) {
			t.Errorf("a user that may not get %s may get a %s", resource, kind)
		}
	}
	for kind, want := range map[string][2]bool{"Ox": {true, true}, "Farm": {false, true}, "Goat": {false, false}} {
		if namespaced, known := p.isNamespaced(schema.GroupKind{Group: "x.dev", Kind: kind}); [2]bool{namespaced, known} != want {
			t.Errorf("%s: in namespaces %t, known %t", kind, namespaced, known)
		}
	}
}
