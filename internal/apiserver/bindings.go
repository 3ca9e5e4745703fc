package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// usedBindings are upstream's bindings that a hub uses: those of administrators, and of what every
// user may read. Upstream's others give rights to the components of a cluster with nodes, by names
// of users and ServiceAccounts that do not exist on a hub: a tenant that took such a name would have them.
var usedBindings = []string{
	"cluster-admin", "system:monitoring", "system:discovery", "system:basic-user", "system:public-info-viewer",
	"system:service-account-issuer-discovery",
}

// keptByPerson is the annotation that is "false" where a person took a default binding over.
const keptByPerson = "rbac.authorization.kubernetes.io/autoupdate"

// unusedDeadline is how long a starting hub tries to delete unused bindings.
const unusedDeadline = 30 * time.Second

// hubRBACProvider provides RBAC as upstream does, with the bindings and roles that a hub uses.
type hubRBACProvider struct {
	controlplaneapiserver.RESTStorageProvider
	logger *slog.Logger
}

// PostStartHook makes the default roles and bindings, and deletes the bindings that earlier versions
// of the hub made and that no hub uses. A binding that cannot be deleted is logged, and stays until the next
// start: the server must not fail for it.
func (l hubRBACProvider) PostStartHook() (string, genericapiserver.PostStartHookFunc, error) {
	ensure := defaultRBACPolicy().EnsureRBACPolicy()
	return rbacrest.PostStartHookName, func(c genericapiserver.PostStartHookContext) error {
		if err := ensure(c); err != nil {
			return err
		}
		api, err := kubernetes.NewForConfig(c.LoopbackClientConfig)
		if err != nil {
			return fmt.Errorf("make loopback client: %w", err)
		}
		var last error
		err = wait.PollUntilContextTimeout(c, time.Second, unusedDeadline, true, func(ctx context.Context) (bool, error) {
			last = deleteUnusedBindings(ctx, api, l.logger)
			return last == nil, nil
		})
		if err != nil && c.Err() == nil {
			l.logger.Error("default bindings of an earlier version are still there; the hub deletes them at its next start", "error", last)
		}
		return nil
	}, nil
}

// defaultRBACPolicy returns the default roles and bindings.
func defaultRBACPolicy() *rbacrest.PolicyData {
	return &rbacrest.PolicyData{
		ClusterRoles:               bootstrappolicy.ClusterRoles(),
		ClusterRoleBindings:        slices.DeleteFunc(bootstrappolicy.ClusterRoleBindings(), func(b rbacv1.ClusterRoleBinding) bool { return !isUsedByHub(&b) }),
		Roles:                      bootstrappolicy.NamespaceRoles(),
		ClusterRolesToAggregate:    bootstrappolicy.ClusterRolesToAggregate(),
		ClusterRoleBindingsToSplit: bootstrappolicy.ClusterRoleBindingsToSplit(),
	}
}

func isUsedByHub(b *rbacv1.ClusterRoleBinding) bool { return slices.Contains(usedBindings, b.Name) }

// rolesOfUnusedBindings returns the roles of upstream's bindings that no hub uses, by namespace and name of
// the binding.
func rolesOfUnusedBindings() map[types.NamespacedName]rbacv1.RoleRef {
	roles := map[types.NamespacedName]rbacv1.RoleRef{}
	for _, b := range slices.Concat(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()) {
		if !isUsedByHub(&b) {
			roles[types.NamespacedName{Name: b.Name}] = b.RoleRef
		}
	}
	for namespace, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range bindings {
			roles[types.NamespacedName{Namespace: namespace, Name: b.Name}] = b.RoleRef
		}
	}
	return roles
}

// deleteUnusedBindings deletes upstream's bindings that no hub uses, by their names. It spares what
// a person took over, what refers to another role, and templates of users.
func deleteUnusedBindings(ctx context.Context, api kubernetes.Interface, logger *slog.Logger) error {
	unused, defaults := rolesOfUnusedBindings(), metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"}
	clusterWide, err := api.RbacV1().ClusterRoleBindings().List(ctx, defaults)
	if err != nil {
		return fmt.Errorf("list default ClusterRoleBindings: %w", err)
	}
	namespaced, err := api.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, defaults)
	if err != nil {
		return fmt.Errorf("list default RoleBindings: %w", err)
	}
	remove := func(m *metav1.ObjectMeta, is rbacv1.RoleRef, del func(context.Context, string, metav1.DeleteOptions) error) error {
		upstreams, known := unused[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}]
		if !known || is != upstreams || m.Annotations[keptByPerson] == "false" || len(m.Finalizers) > 0 {
			return nil
		}
		if err := client.IgnoreNotFound(del(ctx, m.Name, deleteOptionsIfUnchanged(m))); err != nil {
			return fmt.Errorf("delete the default binding %s/%s, which no hub uses: %w", m.Namespace, m.Name, err)
		}
		logger.Info("deleted a default binding of an earlier version, which no hub uses", "namespace", m.Namespace, "name", m.Name)
		return nil
	}
	for _, b := range clusterWide.Items {
		if err := remove(&b.ObjectMeta, b.RoleRef, api.RbacV1().ClusterRoleBindings().Delete); err != nil {
			return err
		}
	}
	for _, b := range namespaced.Items {
		if err := remove(&b.ObjectMeta, b.RoleRef, api.RbacV1().RoleBindings(b.Namespace).Delete); err != nil {
			return err
		}
	}
	return nil
}

// deleteOptionsIfUnchanged lets a deletion act only on the object as it was read.
func deleteOptionsIfUnchanged(m *metav1.ObjectMeta) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}}
}
