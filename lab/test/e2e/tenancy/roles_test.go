package tenancy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// roleObjects give each shipped role to a user, in namespace roles and, for roles of the
// whole hub, everywhere.
const roleObjects = `
{apiVersion: v1, kind: Namespace, metadata: {name: roles}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: roles-others}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-roles-cluster-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:cluster-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: role-cluster-admin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-roles-set}
rules: [{apiGroups: [atoll.dev], resources: [clustersets], resourceNames: [asia], verbs: [bind, manage]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-roles-set}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-roles-set}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: role-cluster-admin}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: roles}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:application-team"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: role-team}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-roles-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:viewer"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: role-viewer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: roles}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:viewer"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: role-viewer-of-one}]
`

// roleHolder is a user with a role. where is the namespace for questions about namespaced
// kinds; an empty one means all.
type roleHolder struct {
	user, group, where string
	can                map[string]string
}

const (
	readVerbs  = "get list watch"
	writeVerbs = "create update patch delete deletecollection"
)

// The rights of each role on each of Atoll's kinds and subresources. An unlisted right is
// denied, and no kind may be left out of the first column.
var roleRights = []roleHolder{
	{user: "role-fleet-admin", group: "atoll:fleet-admins", can: map[string]string{
		"clusters":                          readVerbs + " " + writeVerbs + " accept",
		"clustersets":                       readVerbs + " " + writeVerbs + " bind manage",
		"clustersetbindings":                readVerbs + " " + writeVerbs,
		"propagationpolicies":               readVerbs + " " + writeVerbs + " takeover",
		"clusterpropagationpolicies":        readVerbs + " " + writeVerbs + " takeover",
		"overridepolicies":                  readVerbs + " " + writeVerbs,
		"clusteroverridepolicies":           readVerbs + " " + writeVerbs,
		"placements":                        readVerbs + " " + writeVerbs,
		"clusterplacements":                 readVerbs + " " + writeVerbs,
		"rolloutstrategies":                 readVerbs + " " + writeVerbs,
		"clusterrolloutstrategies":          readVerbs + " " + writeVerbs,
		"clusterscores":                     readVerbs + " " + writeVerbs,
		"resourceinterpreters":              readVerbs + " " + writeVerbs,
		"resourceinterpretercustomizations": readVerbs + " " + writeVerbs,
		"hubsettings":                       readVerbs + " " + writeVerbs,
		"placementdecisions":                readVerbs,
		"clusterplacementdecisions":         readVerbs,
		"bundles":                           readVerbs + " update patch",
		"clusterbundles":                    readVerbs + " update patch",
		"targetslices":                      readVerbs,
		"revisions":                         readVerbs,
		"apisets":                           readVerbs + " delete",
		"hubstates":                         readVerbs + " update patch",
		"repositories":                      readVerbs,
		"sources":                           readVerbs,
		"sourcesets":                        readVerbs,
		"notifications":                     readVerbs,
	}},
	{user: "role-cluster-admin", can: map[string]string{
		"clusters":    readVerbs + " update patch delete accept",
		"clustersets": readVerbs,
	}},
	{user: "role-team", where: "roles", can: map[string]string{
		"clustersetbindings":  readVerbs,
		"propagationpolicies": readVerbs + " " + writeVerbs,
		"overridepolicies":    readVerbs + " " + writeVerbs,
		"placements":          readVerbs + " " + writeVerbs,
		"rolloutstrategies":   readVerbs + " " + writeVerbs,
		"clusterscores":       readVerbs + " " + writeVerbs,
		"placementdecisions":  readVerbs,
		"bundles":             readVerbs + " update patch",
		"repositories":        readVerbs + " " + writeVerbs,
		"sources":             readVerbs + " " + writeVerbs,
		"sourcesets":          readVerbs + " " + writeVerbs,
		"notifications":       readVerbs + " " + writeVerbs,
	}},
	{user: "role-team", where: "roles-others"},
	{user: "role-viewer", can: map[string]string{
		"clusters":                          readVerbs,
		"clustersets":                       readVerbs,
		"clustersetbindings":                readVerbs,
		"propagationpolicies":               readVerbs,
		"clusterpropagationpolicies":        readVerbs,
		"overridepolicies":                  readVerbs,
		"clusteroverridepolicies":           readVerbs,
		"placements":                        readVerbs,
		"clusterplacements":                 readVerbs,
		"rolloutstrategies":                 readVerbs,
		"clusterrolloutstrategies":          readVerbs,
		"clusterscores":                     readVerbs,
		"placementdecisions":                readVerbs,
		"clusterplacementdecisions":         readVerbs,
		"bundles":                           readVerbs,
		"clusterbundles":                    readVerbs,
		"resourceinterpreters":              readVerbs,
		"resourceinterpretercustomizations": readVerbs,
		"repositories":                      readVerbs,
		"sources":                           readVerbs,
		"sourcesets":                        readVerbs,
		"notifications":                     readVerbs,
	}},
	{user: "role-viewer-of-one", where: "roles", can: map[string]string{
		"clustersetbindings":  readVerbs,
		"propagationpolicies": readVerbs,
		"overridepolicies":    readVerbs,
		"placements":          readVerbs,
		"rolloutstrategies":   readVerbs,
		"clusterscores":       readVerbs,
		"placementdecisions":  readVerbs,
		"bundles":             readVerbs,
		"repositories":        readVerbs,
		"sources":             readVerbs,
		"sourcesets":          readVerbs,
		"notifications":       readVerbs,
	}},
	{user: "role-viewer-of-one", where: "roles-others"},
	{user: "role-none", where: "roles"},
}

// allVerbs are the tested verbs: Kubernetes' own, Atoll's, and the verbs that widen RBAC
// itself.
var allVerbs = strings.Fields(readVerbs + " " + writeVerbs + " accept bind manage takeover escalate impersonate approve")

// atollResources lists all resources and subresources of the hub's own kinds, with whether
// they are namespaced.
func atollResources(t *testing.T) map[string]bool {
	t.Helper()
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := clientAs(t, "").List(t.Context(), &crds); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, crd := range crds.Items {
		if !atoll.IsHubOwnedKind(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}) {
			continue
		}
		for _, sub := range []string{"", "/status", "/scale"} {
			out[crd.Spec.Names.Plural+sub+"."+crd.Spec.Group] = crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		}
	}
	return out
}

// isAllowed asks the API server's own authorizer.
func (h roleHolder) isAllowed(t *testing.T, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	what.Resource, what.Subresource, _ = strings.Cut(what.Resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: h.user, Groups: append([]string{"system:authenticated"}, strings.Fields(h.group)...),
		ResourceAttributes: &what,
	}}
	if err := clientAs(t, "").Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func TestRoles(t *testing.T) {
	apply(t, roleObjects)
	t.Run("on every kind", rolesMayWhatTheirTableSays)
	t.Run("no further", rolesReachNoFurther)
}

// Every verb on every kind and subresource of Atoll's, for each shipped role.
func rolesMayWhatTheirTableSays(t *testing.T) {
	testwait.UntilNil(t, "roles are aggregated", func(ctx context.Context) error {
		for _, h := range []roleHolder{roleRights[0], roleRights[2], roleRights[4]} {
			if !h.isAllowed(t, resourceAttributes("list", "bundles.atoll.dev", "", h.where)) || !h.isAllowed(t, resourceAttributes("list", "overridepolicies.atoll.dev", "", h.where)) {
				return errors.New(h.user + " may not list bundles and override policies")
			}
		}
		return nil
	})
	resources := atollResources(t)
	for _, h := range roleRights {
		t.Run(strings.TrimSuffix(h.user+" in "+h.where, " in "), func(t *testing.T) {
			walked := 0
			for full, namespaced := range resources {
				resource, _, _ := strings.Cut(full, ".")
				where := ""
				if namespaced {
					where = h.where
				}
				for _, verb := range allVerbs {
					walked++
					want := slices.Contains(strings.Fields(h.can[resource]), verb)
					if got := h.isAllowed(t, resourceAttributes(verb, full, "", where)); got != want {
						t.Errorf("%s of %s: allowed %t, and the table says %t", verb, full, got, want)
					}
				}
			}
			if walked < 19*len(allVerbs) {
				t.Errorf("only %d questions were asked", walked)
			}
		})
	}
}

// The rights that the walk over whole kinds does not cover.
func rolesReachNoFurther(t *testing.T) {
	testwait.UntilNil(t, "roles are bound", func(ctx context.Context) error {
		if !(roleHolder{user: "role-cluster-admin"}).isAllowed(t, resourceAttributes("manage", "clustersets.atoll.dev", "asia", "")) {
			return errors.New("the cluster admin does not manage asia")
		}
		return nil
	})
	fleet, admin, team := roleHolder{user: "f", group: "atoll:fleet-admins"}, roleHolder{user: "role-cluster-admin"}, roleHolder{user: "role-team"}
	for _, c := range []struct {
		holder                   roleHolder
		verb, resource, name, in string
		want                     bool
	}{
		{admin, "manage", "clustersets.atoll.dev", "asia", "", true},
		{admin, "bind", "clustersets.atoll.dev", "asia", "", true},
		{admin, "manage", "clustersets.atoll.dev", "europe", "", false},
		{admin, "bind", "clustersets.atoll.dev", "default", "", false},
		{admin, "approve", "signers.certificates.k8s.io", "atoll.dev/agent", "", true},
		{admin, "approve", "signers.certificates.k8s.io", "kubernetes.io/kube-apiserver-client", "", false},
		{admin, "get", "secrets", "", "atoll-system", false},
		{admin, "get", "configmaps", "", "roles", false},
		{fleet, "create", "secrets", "", "atoll-system", true},
		{fleet, "get", "secrets", "", "atoll-system", false},
		{fleet, "list", "secrets", "", "atoll-system", false},
		{fleet, "list", "secrets", "", "roles", false},
		{fleet, "list", "deployments.apps", "", "roles", true},
		{fleet, "update", "deployments.apps", "", "roles", false},
		{fleet, "bind", "clusterroles.rbac.authorization.k8s.io", "atoll:application-team", "", true},
		{fleet, "bind", "clusterroles.rbac.authorization.k8s.io", "cluster-admin", "", false},
		{fleet, "escalate", "clusterroles.rbac.authorization.k8s.io", "", "", false},
		{fleet, "impersonate", "users", "", "", false},
		{fleet, "create", "clusterrolebindings.rbac.authorization.k8s.io", "", "", false},
		{team, "list", "secrets", "", "roles", true},
		{team, "list", "secrets", "", "roles-others", false},
		{team, "create", "rolebindings.rbac.authorization.k8s.io", "", "roles", false},
		{team, "create", "resourcequotas", "", "roles", false},
		{team, "get", "namespaces", "roles-others", "roles-others", false},
		{team, "create", "certificatesigningrequests.certificates.k8s.io", "", "", false},
		{team, "get", "secrets", "", "atoll-system", false},
		{team, "create", "serviceaccounts/token", "tenant-roles", "atoll-system", false},
		{roleHolder{user: "role-viewer"}, "list", "secrets", "", "roles", false},
		{roleHolder{user: "role-viewer"}, "list", "deployments.apps", "", "roles", true},
	} {
		if got := c.holder.isAllowed(t, resourceAttributes(c.verb, c.resource, c.name, c.in)); got != c.want {
			t.Errorf("%s may %s %s %q in %q: %t, not %t", c.holder.user, c.verb, c.resource, c.name, c.in, got, c.want)
		}
	}
}

// resourceAttributes about a resource, RESOURCE[/SUBRESOURCE][.GROUP].
func resourceAttributes(verb, resource, name, namespace string) authorizationv1.ResourceAttributes {
	resource, group, _ := strings.Cut(resource, ".")
	return authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Group: group, Name: name, Namespace: namespace}
}
