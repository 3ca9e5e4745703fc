package admission

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/leader"
)

var clusterRoles = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}

// refuseEscalationInSystemNamespace refuses, in namespaces of the system, what would give its writer the
// rights of the hub: RoleBindings, Roles, ServiceAccounts and their tokens; and the Lease of the hub that
// leads, by which another writer would make two hubs lead. Only a user that may escalate writes them, because such a user has all rights already. ServiceAccounts of tenants are
// the exception: they have no rights in these namespaces.
func (p *AdmissionPlugin) refuseEscalationInSystemNamespace(ctx context.Context, a admission.Attributes) error {
	if !isSystemNamespace(a.GetNamespace()) || !givesRights(a) && !isLeaderLease(a) {
		return nil
	}
	if a.GetNamespace() == atoll.SystemNamespace && a.GetResource().Resource == "serviceaccounts" && strings.HasPrefix(a.GetName(), atoll.TenantAccountPrefix) {
		return nil
	}
	if escalates, err := mayEscalate(ctx, p.authorizer, a.GetUserInfo()); err == nil && escalates {
		return nil
	}
	return refuseRequest(a, atoll.ReasonSystemNamespace, fmt.Errorf("namespace %s is the system's: only an administrator of the hub writes %s there; use another namespace", a.GetNamespace(), a.GetResource().Resource))
}

// mayEscalate reports whether the user may write any ClusterRole, and so has all rights of the hub already.
func mayEscalate(ctx context.Context, a authorizer.Authorizer, u user.Info) (bool, error) {
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: "escalate", APIGroup: clusterRoles.Group, APIVersion: "*", Resource: clusterRoles.Resource, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

// isSystemNamespace reports whether the namespace belongs to Kubernetes or to Atoll.
func isSystemNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "atoll-")
}

// isLeaderLease reports whether the request writes the Lease of the hub that leads.
func isLeaderLease(a admission.Attributes) bool {
	r := a.GetResource()
	return r.Group == "coordination.k8s.io" && r.Resource == "leases" && a.GetNamespace() == leader.LeaseNamespace && a.GetName() == leader.LeaseName
}

// givesRights reports whether the request writes an object by which rights are given.
func givesRights(a admission.Attributes) bool {
	switch r := a.GetResource(); r.Group {
	case "":
		return r.Resource == "serviceaccounts"
	case clusterRoles.Group:
		return r.Resource == "rolebindings" || r.Resource == "roles"
	}
	return false
}
