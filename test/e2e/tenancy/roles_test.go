package tenancy

import (
	"context"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// roles are who has each shipped role, in namespace roles and, as far as a role is for
// all of the hub, everywhere.
const roles = `
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

// holder of a role. where is the namespace in which namespaced kinds are asked about;
// an empty one asks about all.
type holder struct {
	user, group, where string
	can                map[string]string
}

const (
	reading = "get list watch"
	writing = "create update patch delete deletecollection"
)

// The rights of each role on each of Atoll's kinds and subresources. What is not named
// here is denied, and no kind may be left out of the first column.
var rights = []holder{
	{user: "role-fleet-admin", group: "atoll:fleet-admins", can: map[string]string{
		"clusters":                          reading + " " + writing + " accept",
		"clustersets":                       reading + " " + writing + " bind manage",
		"clustersetbindings":                reading + " " + writing,
		"propagationpolicies":               reading + " " + writing + " takeover",
		"clusterpropagationpolicies":        reading + " " + writing + " takeover",
		"overridepolicies":                  reading + " " + writing,
		"clusteroverridepolicies":           reading + " " + writing,
		"placements":                        reading + " " + writing,
		"clusterplacements":                 reading + " " + writing,
		"clusterscores":                     reading + " " + writing,
		"resourceinterpreters":              reading + " " + writing,
		"resourceinterpretercustomizations": reading + " " + writing,
		"hubsettings":                       reading + " " + writing,
		"placementdecisions":                reading,
		"clusterplacementdecisions":         reading,
		"bundles":                           reading + " update patch",
		"clusterbundles":                    reading + " update patch",
		"targetslices":                      reading,
		"revisions":                         reading,
		"apisets":                           reading,
		"hubstates":                         reading + " update patch",
	}},
	{user: "role-cluster-admin", can: map[string]string{
		"clusters":    reading + " update patch delete accept",
		"clustersets": reading,
	}},
	{user: "role-team", where: "roles", can: map[string]string{
		"clustersetbindings":  reading,
		"propagationpolicies": reading + " " + writing,
		"overridepolicies":    reading + " " + writing,
		"placements":          reading + " " + writing,
		"clusterscores":       reading + " " + writing,
		"placementdecisions":  reading,
		"bundles":             reading + " update patch",
	}},
	{user: "role-team", where: "roles-others"},
	{user: "role-viewer", can: map[string]string{
		"clusters":                          reading,
		"clustersets":                       reading,
		"clustersetbindings":                reading,
		"propagationpolicies":               reading,
		"clusterpropagationpolicies":        reading,
		"overridepolicies":                  reading,
		"clusteroverridepolicies":           reading,
		"placements":                        reading,
		"clusterplacements":                 reading,
		"clusterscores":                     reading,
		"placementdecisions":                reading,
		"clusterplacementdecisions":         reading,
		"bundles":                           reading,
		"clusterbundles":                    reading,
		"resourceinterpreters":              reading,
		"resourceinterpretercustomizations": reading,
	}},
	{user: "role-viewer-of-one", where: "roles", can: map[string]string{
		"clustersetbindings":  reading,
		"propagationpolicies": reading,
		"overridepolicies":    reading,
		"placements":          reading,
		"clusterscores":       reading,
		"placementdecisions":  reading,
		"bundles":             reading,
	}},
	{user: "role-viewer-of-one", where: "roles-others"},
	{user: "role-nobody", where: "roles"},
}

// verbs that are walked: Kubernetes' own, Atoll's, and those by which RBAC itself is
// widened.
var verbs = strings.Fields(reading + " " + writing + " accept bind manage takeover escalate impersonate approve")

// atollResources lists all resources and subresources of the hub's own kinds, with whether
// they are namespaced.
func atollResources(t *testing.T) map[string]bool {
	t.Helper()
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := as(t, "").List(t.Context(), &crds); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, crd := range crds.Items {
		if !atoll.OwnKind(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}) {
			continue
		}
		for _, sub := range []string{"", "/status", "/scale"} {
			out[crd.Spec.Names.Plural+sub+"."+crd.Spec.Group] = crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		}
	}
	return out
}

// may asks the API server's own authorizer.
func (h holder) may(t *testing.T, what authorizationv1.ResourceAttributes) bool {
	t.Helper()
	what.Resource, what.Subresource, _ = strings.Cut(what.Resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: h.user, Groups: append([]string{"system:authenticated"}, strings.Fields(h.group)...),
		ResourceAttributes: &what,
	}}
	if err := as(t, "").Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func TestRoles(t *testing.T) {
	apply(t, roles)
	t.Run("on every kind", rolesMayWhatTheirTableSays)
	t.Run("no further", rolesReachNoFurther)
}

// Every verb on every kind and subresource of Atoll's, for each shipped role.
func rolesMayWhatTheirTableSays(t *testing.T) {
	eventually(t, "roles are aggregated", func(ctx context.Context) string {
		for _, h := range []holder{rights[0], rights[2], rights[4]} {
			if !h.may(t, ask("list", "bundles.atoll.dev", "", h.where)) || !h.may(t, ask("list", "overridepolicies.atoll.dev", "", h.where)) {
				return h.user + " may not list bundles and override policies"
			}
		}
		return ""
	})
	resources := atollResources(t)
	for _, h := range rights {
		t.Run(strings.TrimSuffix(h.user+" in "+h.where, " in "), func(t *testing.T) {
			walked := 0
			for full, namespaced := range resources {
				resource, _, _ := strings.Cut(full, ".")
				where := ""
				if namespaced {
					where = h.where
				}
				for _, verb := range verbs {
					walked++
					want := slices.Contains(strings.Fields(h.can[resource]), verb)
					if got := h.may(t, ask(verb, full, "", where)); got != want {
						t.Errorf("%s of %s: allowed %t, and the table says %t", verb, full, got, want)
					}
				}
			}
			if walked < 19*len(verbs) {
				t.Errorf("only %d questions were asked", walked)
			}
		})
	}
}

// What the walk over whole kinds does not ask.
func rolesReachNoFurther(t *testing.T) {
	eventually(t, "roles are bound", func(ctx context.Context) string {
		if !(holder{user: "role-cluster-admin"}).may(t, ask("manage", "clustersets.atoll.dev", "asia", "")) {
			return "the cluster admin does not manage asia"
		}
		return ""
	})
	fleet, admin, team := holder{user: "f", group: "atoll:fleet-admins"}, holder{user: "role-cluster-admin"}, holder{user: "role-team"}
	for _, c := range []struct {
		who                      holder
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
		{holder{user: "role-viewer"}, "list", "secrets", "", "roles", false},
		{holder{user: "role-viewer"}, "list", "deployments.apps", "", "roles", true},
	} {
		if got := c.who.may(t, ask(c.verb, c.resource, c.name, c.in)); got != c.want {
			t.Errorf("%s may %s %s %q in %q: %t, not %t", c.who.user, c.verb, c.resource, c.name, c.in, got, c.want)
		}
	}
}

// ask about a resource, RESOURCE[/SUBRESOURCE][.GROUP].
func ask(verb, resource, name, namespace string) authorizationv1.ResourceAttributes {
	resource, group, _ := strings.Cut(resource, ".")
	return authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Group: group, Name: name, Namespace: namespace}
}
