package tenancy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// escalations are ways to more rights than a role has. None of them may be open to the holder of a
// default role, bound in the whole hub.
var escalations = []struct {
	name string
	try  func(ctx context.Context, c client.Client, holder string) error
}{
	{"escalate: a ClusterRole with all rights", func(ctx context.Context, c client.Client, holder string) error {
		role := &rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}
		role.Name = "all-of-" + holder
		return c.Create(ctx, role, client.DryRunAll)
	}},
	{"bind: cluster-admin in the hub", func(ctx context.Context, c client.Client, holder string) error {
		binding := &rbacv1.ClusterRoleBinding{RoleRef: adminRole("cluster-admin"), Subjects: userSubject(holder)}
		binding.Name = "admin-" + holder
		return c.Create(ctx, binding, client.DryRunAll)
	}},
	{"bind: cluster-admin in a namespace", bindIn("default", "cluster-admin")},
	{"bind: admin in kube-system", bindIn("kube-system", "admin")},
	{"bind: admin in atoll-system", bindIn("atoll-system", "admin")},
	{"token: a new ServiceAccount of kube-system", func(ctx context.Context, c client.Client, holder string) error {
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = "kube-system", "clusterrole-aggregation-controller"
		return c.Create(ctx, account, client.DryRunAll)
	}},
	{"token: of kube-system", tokenOf("kube-system")},
	{"token: of atoll-system", tokenOf("atoll-system")},
	{"impersonate: an administrator's group", isAllowedTo("impersonate", "groups", "system:masters")},
	{"impersonate: a ServiceAccount of kube-system", isAllowedIn("kube-system", "impersonate", "serviceaccounts", "clusterrole-aggregation-controller")},
	{"impersonate: a tenant's ServiceAccount of atoll-system", isAllowedIn("atoll-system", "impersonate", "serviceaccounts", "tenant-shop")},
	{"impersonate: any user", isAllowedTo("impersonate", "users", "")},
	{"escalate: any ClusterRole", isAllowedTo("escalate", "clusterroles.rbac.authorization.k8s.io", "")},
	{"bind: any ClusterRole", isAllowedTo("bind", "clusterroles.rbac.authorization.k8s.io", "")},
	{"nodes/proxy: reads", isAllowedTo("get", "nodes/proxy", "")},
	{"nodes/proxy: writes", isAllowedTo("create", "nodes/proxy", "")},
}

// TestNoDefaultRoleEscalates tries each way for each default role that a person may hold.
func TestNoDefaultRoleEscalates(t *testing.T) {
	var roles rbacv1.ClusterRoleList
	if err := clientAs(t, "").List(t.Context(), &roles); err != nil {
		t.Fatal(err)
	}
	walked := 0
	for _, role := range roles.Items {
		if !isHeldByPeople(role.Name) {
			continue
		}
		walked++
		t.Run(role.Name, func(t *testing.T) {
			holder := "holder-of-" + strings.ReplaceAll(role.Name, ":", "-")
			binding := &rbacv1.ClusterRoleBinding{RoleRef: adminRole(role.Name), Subjects: userSubject(holder)}
			binding.Name = holder
			if err := clientAs(t, "").Create(t.Context(), binding); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = clientAs(t, "").Delete(context.WithoutCancel(t.Context()), binding) })
			c := clientAs(t, holder, "system:authenticated")
			for _, e := range escalations {
				err := e.try(t.Context(), c, holder)
				if err == nil {
					t.Errorf("the holder of %s may %s", role.Name, e.name)
				} else if !apierrors.IsForbidden(err) {
					t.Errorf("%s is not forbidden, but fails: %v", e.name, err)
				}
			}
		})
	}
	if walked < 12 {
		t.Errorf("only %d roles were walked", walked)
	}
}

// isHeldByPeople reports whether a default role is for people: Atoll's, upstream's for namespaces,
// and those of all users. cluster-admin has all rights, and system:* are for the components of a
// cluster with nodes: no person holds them before an administrator binds them.
func isHeldByPeople(role string) bool {
	everyUsers := []string{"admin", "edit", "view", "system:basic-user", "system:discovery", "system:public-info-viewer", "system:service-account-issuer-discovery"}
	return strings.HasPrefix(role, "atoll:") || slices.Contains(everyUsers, role)
}

// TestOnlyGroupsAreBoundByDefault holds that no name of a user or ServiceAccount has rights before
// an administrator gives it some: a tenant that takes such a name would have them.
func TestOnlyGroupsAreBoundByDefault(t *testing.T) {
	defaults := client.MatchingLabels{"kubernetes.io/bootstrapping": "rbac-defaults"}
	var cluster rbacv1.ClusterRoleBindingList
	var namespaced rbacv1.RoleBindingList
	for _, list := range []client.ObjectList{&cluster, &namespaced} {
		if err := clientAs(t, "").List(t.Context(), list, defaults); err != nil {
			t.Fatal(err)
		}
	}
	if len(cluster.Items) == 0 || len(namespaced.Items) > 0 {
		t.Errorf("%d ClusterRoleBindings and %d RoleBindings are there by default", len(cluster.Items), len(namespaced.Items))
	}
	for _, b := range cluster.Items {
		for _, s := range b.Subjects {
			if s.Kind != rbacv1.GroupKind {
				t.Errorf("%s gives rights to %s %s/%s", b.Name, s.Kind, s.Namespace, s.Name)
			}
		}
	}
}

func adminRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func userSubject(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}}
}

func bindIn(namespace, role string) func(context.Context, client.Client, string) error {
	return func(ctx context.Context, c client.Client, holder string) error {
		binding := &rbacv1.RoleBinding{RoleRef: adminRole(role), Subjects: userSubject(holder)}
		binding.Namespace, binding.Name = namespace, holder
		return c.Create(ctx, binding, client.DryRunAll)
	}
}

func tokenOf(namespace string) func(context.Context, client.Client, string) error {
	return func(ctx context.Context, c client.Client, _ string) error {
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = namespace, "default"
		return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
	}
}

func isAllowedTo(verb, resource, name string) func(context.Context, client.Client, string) error {
	return isAllowedIn("", verb, resource, name)
}

func isAllowedIn(namespace, verb, resource, name string) func(context.Context, client.Client, string) error {
	return func(ctx context.Context, c client.Client, _ string) error {
		what := resourceAttributes(verb, resource, name, namespace)
		what.Resource, what.Subresource, _ = strings.Cut(what.Resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
		if err := c.Create(ctx, review); err != nil || review.Status.Allowed {
			return err
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New(review.Status.Reason))
	}
}
