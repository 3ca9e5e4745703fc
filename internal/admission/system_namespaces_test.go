package admission

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// In namespaces of the system only administrators give rights: a binding there reaches the accounts
// of the hub's controllers, one of which may write every ClusterRole.
func TestRightsInSystemNamespacesAreForAdministrators(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: func() (Hub, bool) { return Hub{}, false }})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "admin" && a.GetVerb() == "escalate" && a.GetResource() == "clusterroles" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	const rbac = "rbac.authorization.k8s.io"
	for _, c := range []struct {
		namespace, group, resource, subresource, name string
		forAdmins                                     bool
	}{
		{"kube-system", rbac, "rolebindings", "", "mine", true},
		{"kube-system", rbac, "roles", "", "mine", true},
		{"kube-system", "", "serviceaccounts", "", "mine", true},
		{"kube-system", "", "serviceaccounts", "token", "clusterrole-aggregation-controller", true},
		{"kube-public", rbac, "rolebindings", "", "mine", true},
		{"atoll-system", rbac, "rolebindings", "", "mine", true},
		{"atoll-system", "", "serviceaccounts", "token", "set-admin-asia", true},
		{"atoll-system", "", "serviceaccounts", "", "tenant-shop", false},
		{"atoll-system", "", "serviceaccounts", "token", "tenant-shop", false},
		{"kube-system", "", "serviceaccounts", "token", "tenant-shop", true},
		{"kube-system", "", "configmaps", "", "mine", false},
		{"kube-system", "coordination.k8s.io", "leases", "", "atoll-hub", true},
		{"kube-system", "coordination.k8s.io", "leases", "", "mine", false},
		{"shop", "coordination.k8s.io", "leases", "", "atoll-hub", false},
		{"shop", rbac, "rolebindings", "", "mine", false},
		{"kubernetes-apps", rbac, "rolebindings", "", "mine", false},
	} {
		for _, name := range []string{"ann", "admin"} {
			gvr := schema.GroupVersionResource{Group: c.group, Version: "v1", Resource: c.resource}
			a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{Group: c.group, Version: "v1", Kind: "Any"}, c.namespace, c.name, gvr, c.subresource,
				admission.Create, nil, false, &user.DefaultInfo{Name: name})
			err := p.refuseEscalationInSystemNamespace(t.Context(), a)
			if want := c.forAdmins && name != "admin"; (err != nil) != want {
				t.Errorf("%s writes %s %s/%s %s in %s: %v, refused should be %t", name, c.resource, c.namespace, c.name, c.subresource, c.namespace, err, want)
			}
			wantReason(t, err)
			if deletes := p.validateDelete(t.Context(), a); c.resource == "leases" && (deletes != nil) != (err != nil) {
				t.Errorf("%s deletes the Lease %s/%s: %v", name, c.namespace, c.name, deletes)
			}
		}
	}
}
