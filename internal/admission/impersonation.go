package admission

import (
	"context"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ProtectSystemAccounts wraps an authorizer so that only a user that may escalate ClusterRoles
// impersonates a ServiceAccount of a system namespace. The default roles edit and admin permit their
// holders to impersonate all ServiceAccounts where the roles are bound.
func ProtectSystemAccounts(next authorizer.Authorizer) authorizer.Authorizer {
	return systemAccountAuthorizer{next}
}

type systemAccountAuthorizer struct{ authorizer.Authorizer }

// Authorize denies what ProtectSystemAccounts describes, and leaves all else to the wrapped authorizer.
func (s systemAccountAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := s.Authorizer.Authorize(ctx, a)
	if decision != authorizer.DecisionAllow || !impersonatesSystemAccount(a) {
		return decision, reason, err
	}
	escalates, err := mayEscalate(ctx, s.Authorizer, a.GetUser())
	if err == nil && escalates {
		return decision, reason, nil
	}
	return authorizer.DecisionDeny, "only an administrator of the hub impersonates a ServiceAccount of a system namespace", err
}

// impersonatesSystemAccount reports whether the request may make its user a ServiceAccount of a system
// namespace. A question about all namespaces includes these namespaces; the impersonation itself always names one.
func impersonatesSystemAccount(a authorizer.Attributes) bool {
	verb := a.GetVerb()
	return (verb == "impersonate" || verb == "impersonate:serviceaccount") && a.GetAPIGroup() == "" && a.GetResource() == "serviceaccounts" && isSystemNamespace(a.GetNamespace())
}
