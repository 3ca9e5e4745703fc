package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// The hub may name a ServiceAccount for an object. The agent then writes as itself, and only what the ServiceAccount
// has the right to as well: no account that a hub names adds a right. The member's API answers which rights it has.

// maxNamespaceAccounts bounds how many ServiceAccounts are tried for one namespace.
const maxNamespaceAccounts = 4

// checkAccountRights returns which right the ServiceAccount lacks that the hub names for the plan's object; nil: none,
// or no account is named.
func (e *MemberApplier) checkAccountRights(ctx context.Context, p pendingWork) *Failure {
	if p.Account == "" {
		return nil
	}
	verbs := accountVerbs(p)
	if len(verbs) == 0 {
		return nil
	}
	res, failure := e.resourceOfStep(ctx, p)
	switch {
	case failure != nil && failure.Reason == atoll.ReasonNotServed && p.isDeletion():
		return nil // it went with its definition, and nothing is written
	case failure != nil:
		return failure
	}
	needed := make([]member.Access, 0, len(verbs)+1)
	for _, verb := range verbs {
		needed = append(needed, accessTo(p.Account, verb, res, p.Key))
	}
	if granting, failure := grantingAccess(p); failure != nil {
		return failure
	} else if granting != nil {
		needed = append(needed, *granting)
	}
	failure = e.checkAccess(ctx, needed)
	if failure != nil && failure.Reason == atoll.ReasonServiceAccountForbidden {
		return cmp.Or(e.missingNamespaceFailure(p.Key.Namespace), failure)
	}
	return failure
}

// missingNamespaceFailure explains that a namespace is missing because it may not be created; nil where the namespace
// is there or may be created. No right in a namespace can be granted before it exists.
func (e *MemberApplier) missingNamespaceFailure(ns string) *Failure {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, known := e.book.Record(atoll.NamespaceKey(ns)); !known || r.UID != "" {
		return nil
	}
	return e.deniedNamespaceFailure(ns)
}

// resourceOfStep returns the resource that the plan's step reads and writes.
func (e *MemberApplier) resourceOfStep(ctx context.Context, p pendingWork) (member.Resource, *Failure) {
	switch {
	case p.isDeletion():
		return e.existingResource(ctx, p)
	case p.Observed != nil:
		return e.resourceFor(ctx, p.Key, p.Observed.APIVersion)
	case p.Item != nil:
		return e.resourceFor(ctx, p.Key, p.Item.APIVersion)
	}
	return e.existingResource(ctx, p)
}

// accountVerbs returns the verbs of the member's API that the plan's step needs. A release takes off Atoll's own labels
// and field managers alone, and needs none.
func accountVerbs(p pendingWork) []string {
	switch p.Verb {
	case ownership.Apply:
		if p.Record.UID == "" {
			return []string{"get", "create", "patch"}
		}
		return []string{"get", "patch"}
	case ownership.Replace:
		return []string{"get", "create", "patch", "delete"}
	case ownership.Delete, ownership.Expire, ownership.DeleteNamespace:
		if len(p.ReleasedFinalizers) > 0 {
			return []string{"delete", "patch"}
		}
		return []string{"delete"}
	case observeItem:
		if p.Observed != nil && p.Observed.Observe.ReportsDrift() {
			return []string{"get", "patch"} // for the dry run
		}
		return []string{"get"}
	case ownership.Nothing:
		if p.correct && p.Item != nil {
			return []string{"get", "patch"}
		}
	}
	return nil
}

func accessTo(account, verb string, res member.Resource, key atoll.ItemKey) member.Access {
	return member.Access{
		Account: account, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Resource, Namespace: key.Namespace, Name: key.Name,
	}
}

const rbacGroup = "rbac.authorization.k8s.io"

// grantingAccess returns the right by which the ServiceAccount may grant what the plan's role or binding grants; nil
// for other objects. The member's API checks only that the agent may grant it.
func grantingAccess(p pendingWork) (*member.Access, *Failure) {
	if p.Key.Group != rbacGroup || p.Item == nil || p.isDeletion() {
		return nil, nil
	}
	role := member.Access{Account: p.Account, Verb: "escalate", Group: rbacGroup, Version: "v1", Namespace: p.Key.Namespace, Name: p.Key.Name}
	switch p.Key.Kind {
	case "Role", "ClusterRole":
		role.Resource = roleResources[p.Key.Kind]
		return &role, nil
	case "RoleBinding", "ClusterRoleBinding":
	default:
		return nil, nil
	}
	var binding struct {
		RoleRef struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"roleRef"`
	}
	err := json.Unmarshal(p.Item.Object, &binding)
	role.Verb, role.Resource, role.Name = "bind", roleResources[binding.RoleRef.Kind], binding.RoleRef.Name
	if err != nil || role.Resource == "" || role.Name == "" {
		return nil, &Failure{Reason: atoll.ReasonInvalid, Message: "roleRef names no Role and no ClusterRole, so the right of ServiceAccount " + p.Account + " to bind it cannot be checked"}
	}
	return &role, nil
}

// roleResources are the resources of the kinds to which a roleRef may point.
var roleResources = map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}

// checkAccess returns the first of the rights that the ServiceAccount lacks; nil: it has all.
func (e *MemberApplier) checkAccess(ctx context.Context, needed []member.Access) *Failure {
	for _, right := range needed {
		allowed, err := e.access.reviewAccess(ctx, right)
		switch {
		case apierrors.IsNotFound(err):
			return &Failure{Reason: atoll.ReasonForbidden, Message: "the member does not serve subjectaccessreviews, so the rights of ServiceAccount " + right.Account + " cannot be checked"}
		case err != nil:
			return unknownAccessFailure(err, right.Account)
		case !allowed:
			return missingAccessFailure(right)
		}
	}
	return nil
}

// unknownAccessFailure explains that the member's API did not answer which rights the ServiceAccount has. Nothing is
// written without the answer.
func unknownAccessFailure(err error, account string) *Failure {
	f := failureFromError(err, atoll.ItemKey{})
	if !apierrors.IsForbidden(err) { // its advice is enough
		f.Message = truncateText("the rights of ServiceAccount " + account + " cannot be checked: " + f.Message)
	}
	return f
}

// missingAccessFailure explains which right the ServiceAccount lacks, with a rule that grants all that an object needs.
func missingAccessFailure(right member.Access) *Failure {
	verbs := "get, create, patch, delete"
	if right.Verb == "escalate" || right.Verb == "bind" {
		verbs = right.Verb
	}
	group, resource, where := `""`, right.Resource, "in this cluster"
	if right.Group != "" {
		group, resource = right.Group, right.Resource+"."+right.Group
	}
	if right.Namespace != "" {
		where = "in namespace " + right.Namespace
	}
	return &Failure{
		Reason: atoll.ReasonServiceAccountForbidden,
		Message: truncateText(fmt.Sprintf("ServiceAccount %s may not %s %s %s %s: grant it {apiGroups: [%s], resources: [%s], verbs: [%s]} there, or name another one on the hub",
			right.Account, right.Verb, resource, right.Name, where, group, right.Resource, verbs)),
	}
}

// namespaceAccount returns the first of the ServiceAccounts that has the right to create or label a namespace. Empty: none
// is named, and the agent's own rights suffice. The failure is that of the first account, when none has the right.
func (e *MemberApplier) namespaceAccount(ctx context.Context, ns string, accounts []string, exists bool) (account string, failure *Failure) {
	key, verbs := atoll.NamespaceKey(ns), []string{"get", "create", "patch"}
	if exists {
		verbs = []string{"get", "patch"}
	}
	if len(accounts) == 0 {
		return "", e.mayApply(ctx, key, "")
	}
	for _, account := range accounts[:min(len(accounts), maxNamespaceAccounts)] {
		missing := e.mayApply(ctx, key, account)
		if missing == nil {
			needed := make([]member.Access, 0, len(verbs))
			for _, verb := range verbs {
				needed = append(needed, accessTo(account, verb, namespaces, key))
			}
			missing = e.checkAccess(ctx, needed)
		}
		if missing == nil {
			return account, nil
		}
		if failure == nil {
			failure = missing
		}
	}
	return "", failure
}
