package admission

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestOnlyAdministratorsImpersonateSystemAccounts(t *testing.T) {
	rights := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		switch name := a.GetUser().GetName(); {
		case name == "none":
			return authorizer.DecisionNoOpinion, "no rule", nil
		case a.GetVerb() != "escalate":
			return authorizer.DecisionAllow, "a rule", nil
		case name == "broken":
			return authorizer.DecisionNoOpinion, "", errors.New("the rules are not read yet")
		case name == "admin" && a.GetResource() == "clusterroles" && a.GetAPIGroup() == "rbac.authorization.k8s.io":
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	for _, c := range []struct {
		user, verb, group, resource, namespace string
		want                                   authorizer.Decision
	}{
		{"edit", "impersonate", "", "serviceaccounts", "atoll-system", authorizer.DecisionDeny},
		{"edit", "impersonate", "", "serviceaccounts", "kube-system", authorizer.DecisionDeny},
		{"edit", "impersonate:serviceaccount", "", "serviceaccounts", "kube-system", authorizer.DecisionDeny},
		{"broken", "impersonate", "", "serviceaccounts", "kube-system", authorizer.DecisionDeny},
		{"none", "impersonate", "", "serviceaccounts", "kube-system", authorizer.DecisionNoOpinion},
		{"admin", "impersonate", "", "serviceaccounts", "kube-system", authorizer.DecisionAllow},
		{"edit", "impersonate", "", "serviceaccounts", "shop", authorizer.DecisionAllow},
		{"edit", "get", "", "serviceaccounts", "kube-system", authorizer.DecisionAllow},
		{"edit", "impersonate", "example.com", "serviceaccounts", "kube-system", authorizer.DecisionAllow},
		{"edit", "impersonate", "", "users", "", authorizer.DecisionAllow},
	} {
		got, _, _ := ProtectSystemAccounts(rights).Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: c.user}, Verb: c.verb, APIGroup: c.group, Resource: c.resource, Namespace: c.namespace, Name: "any", ResourceRequest: true,
		})
		if got != c.want {
			t.Errorf("%s %s %s/%s in %q: %v, not %v", c.user, c.verb, c.group, c.resource, c.namespace, got, c.want)
		}
	}
}
