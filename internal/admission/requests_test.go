package admission

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// newServedMapper returns the kinds that the hub of these tests serves.
func newServedMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "rbac.authorization.k8s.io", Version: "v1"}, {Group: "atoll.dev", Version: "v1alpha1"}, {Group: "example.com", Version: "v1"}})
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"},
		{Group: "atoll.dev", Version: "v1alpha1", Kind: "PropagationPolicy"}, {Group: "example.com", Version: "v1", Kind: "Thing"},
	} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, meta.RESTScopeRoot)
	mapper.Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, meta.RESTScopeRoot)
	return mapper
}

// newGrantingPlugin returns a plugin of a hub whose own identity is the user hub. Each right is
// "USER VERB RESOURCE.GROUP NAMESPACE/NAME"; all else is denied.
func newGrantingPlugin(hub Hub, rights ...string) *AdmissionPlugin {
	p := New(Options{Own: func(u user.Info) bool { return u.GetName() == "hub" }, Hub: readyHub(hub)})
	p.SetRESTMapper(newServedMapper())
	granted := map[string]bool{}
	for _, right := range rights {
		granted[right] = true
	}
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
		if a.IsResourceRequest() && granted[a.GetUser().GetName()+" "+a.GetVerb()+" "+resource.String()+" "+a.GetNamespace()+"/"+a.GetName()] {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	return p
}

// requestOf returns a user's create (without before), delete (without now) or update.
func requestOf(who string, now, before *unstructured.Unstructured) admission.Attributes {
	of, op := now, admission.Update
	var obj, old runtime.Object
	if now != nil {
		obj = now
	} else {
		of, op = before, admission.Delete
	}
	if before != nil {
		old = before
	} else {
		op = admission.Create
	}
	gvk := of.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return admission.NewAttributesRecord(obj, old, gvk, of.GetNamespace(), of.GetName(), resource, "", op, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: who})
}

// onSubresource returns the request as one on a subresource.
func onSubresource(a admission.Attributes, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(a.GetObject(), a.GetOldObject(), a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(), subresource, a.GetOperation(), nil, false, a.GetUserInfo())
}

// wantRefusal holds that an error is a refusal with that reason and, at its end, that text. Without a
// text there must be no error.
func wantRefusal(t *testing.T, what string, err error, reason atoll.Reason, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("%s: refused: %v", what, err)
		}
		return
	}
	if err == nil || !strings.HasSuffix(err.Error(), want) || refusal.ReasonOf(err, "") != reason {
		t.Errorf("%s: %v (%s), want %s: %s", what, err, refusal.ReasonOf(err, ""), reason, want)
	}
}
