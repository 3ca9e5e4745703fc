package apiserver_test

import (
	"log/slog"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/apiserver"
)

// TestBindingsOfEarlierVersionsAreDeleted: those that upstream made, that no hub uses, that no person
// took over, and that are no template.
func TestBindingsOfEarlierVersionsAreDeleted(t *testing.T) {
	rbac := newUser(t, hub.LoopbackConfig()).kube.RbacV1()
	account := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "clusterrole-aggregation-controller"}}
	role := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	want := map[string]bool{"cluster-admin": true}
	for _, c := range []struct {
		name, role string
		change     func(*rbacv1.ClusterRoleBinding)
		stays      bool
	}{
		{"system:controller:clusterrole-aggregation-controller", "system:controller:clusterrole-aggregation-controller", nil, false},
		{"system:kube-dns", "system:kube-dns", nil, false},
		{"system:kube-scheduler", "view", nil, true},
		{"system:node-proxier", "system:node-proxier", func(b *rbacv1.ClusterRoleBinding) {
			b.Annotations = map[string]string{"rbac.authorization.kubernetes.io/autoupdate": "false"}
		}, true},
		{"system:volume-scheduler", "system:volume-scheduler", func(b *rbacv1.ClusterRoleBinding) { b.Finalizers = []string{"example.com/template"} }, true},
		{"system:controller:job-controller", "system:controller:job-controller", func(b *rbacv1.ClusterRoleBinding) { b.Labels = nil }, true},
		{"system:coredns", "system:coredns", nil, true}, // a person's, with upstream's label
	} {
		b := &rbacv1.ClusterRoleBinding{RoleRef: role("ClusterRole", c.role), Subjects: account}
		b.Name, b.Labels = c.name, map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
		if c.change != nil {
			c.change(b)
		}
		if _, err := rbac.ClusterRoleBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want[c.name] = c.stays
	}
	for name, r := range map[string]string{"system:controller:token-cleaner": "system:controller:token-cleaner", "a-person-wrote-this": "view"} {
		b := &rbacv1.RoleBinding{RoleRef: role("Role", r), Subjects: account}
		b.Name, b.Labels = name, map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}
		if _, err := rbac.RoleBindings("kube-system").Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := apiserver.DeleteUnusedBindings(t.Context(), newUser(t, hub.LoopbackConfig()).kube, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for name, stays := range want {
		b, err := rbac.ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{})
		if is := err == nil && b.DeletionTimestamp == nil; is != stays || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("the ClusterRoleBinding %s is there: %t, %v", name, is, err)
		}
	}
	list, err := rbac.RoleBindings("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "a-person-wrote-this" {
		t.Errorf("the RoleBindings of kube-system are %v", list.Items)
	}
}
