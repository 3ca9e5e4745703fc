package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// tenantSpec specifies a tenant.
type tenantSpec struct {
	name, namespace string
	sets            []string
	users, groups   []string
	viewers         []string
	lifetime        time.Duration
	server          string
}

// The names of what a tenant is made of, and its shipped roles.
const (
	teamBinding   = "atoll:tenant"
	viewerBinding = "atoll:tenant-viewers"
	teamRole      = "atoll:application-team"
	viewerRole    = "atoll:viewer"
	fieldManager  = "atoll-tenant"
)

// serviceAccountName is the name of the tenant's ServiceAccount in the hub's own namespace, where
// the tenant itself cannot make further tokens of it, and no placement finds it.
func serviceAccountName(tenant string) string { return atoll.TenantAccountPrefix + tenant }

func (s tenantSpec) validate() error {
	var errs []error
	for what, name := range map[string]string{"the tenant's name": s.name, "the namespace": s.namespace} {
		for _, msg := range validation.IsDNS1123Label(name) {
			errs = append(errs, fmt.Errorf("%s %q is malformed: %s", what, name, msg))
		}
	}
	if s.namespace == metav1.NamespaceDefault || s.namespace == atoll.SystemNamespace || strings.HasPrefix(s.namespace, "kube-") {
		errs = append(errs, fmt.Errorf("namespace %q is the hub's own: choose another one with --namespace", s.namespace))
	}
	if len(s.sets) == 0 {
		errs = append(errs, errors.New("name where the tenant may place, with --set; `kubectl get clustersets` lists the cluster sets"))
	}
	if err := client.CheckTokenLifetime(s.lifetime); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

type createdTenant struct {
	kubeconfig []byte
	expires    time.Time
	// byDefault is a sentence about objects that no policy selects, or empty.
	byDefault string
}

// createTenant brings all of a tenant about, in an order in which each part is of use as soon
// as it is there, and the namespace is never without a binding once it had one.
func createTenant(ctx context.Context, c *client.Connection, s tenantSpec) (createdTenant, error) {
	if err := s.checkClusterSetsExist(ctx, c); err != nil {
		return createdTenant{}, err
	}
	if err := s.checkNamespaceFree(ctx, c); err != nil {
		return createdTenant{}, err
	}
	for _, o := range s.tenantObjects() {
		if err := s.applyObject(ctx, c, o); err != nil {
			return createdTenant{}, err
		}
	}
	if err := s.removeStaleSetBindings(ctx, c); err != nil {
		return createdTenant{}, err
	}
	kubeconfig, until, err := c.IssueKubeconfig(ctx, client.Access{Name: s.name, Namespace: s.namespace, Account: serviceAccountName(s.name), Lifetime: s.lifetime, Server: s.server})
	if err != nil {
		return createdTenant{}, err
	}
	return createdTenant{kubeconfig, until, describeDefaultPlacement(ctx, c)}, nil
}

func (s tenantSpec) checkClusterSetsExist(ctx context.Context, c *client.Connection) error {
	for _, name := range s.sets {
		_, err := client.Get[v1alpha1.ClusterSet](ctx, c, client.ClusterSets, "", name)
		if client.IsGone(err) {
			return fmt.Errorf("there is no cluster set %q; `kubectl get clustersets` lists them", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkNamespaceFree reports whether the namespace is there to be had.
func (s tenantSpec) checkNamespaceFree(ctx context.Context, c *client.Connection) error {
	ns, err := client.Get[corev1.Namespace](ctx, c, client.Namespaces, "", s.namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case ns.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s is being deleted: wait until it is gone, or choose another one with --namespace", s.namespace)
	case ns.Labels[atoll.LabelTenant] == s.name:
		return nil
	case ns.Labels[atoll.LabelTenant] != "":
		return fmt.Errorf("namespace %s is tenant %s's: choose another one with --namespace", s.namespace, ns.Labels[atoll.LabelTenant])
	}
	return fmt.Errorf("namespace %s exists and is no tenant's: choose another one with --namespace, or hand it over with `kubectl label namespace %s %s=%s`",
		s.namespace, s.namespace, atoll.LabelTenant, s.name)
}

// tenantObjects returns the objects of the tenant, in order.
func (s tenantSpec) tenantObjects() []*unstructured.Unstructured {
	object := func(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
		o.SetName(name)
		o.SetNamespace(namespace)
		o.SetLabels(map[string]string{atoll.LabelTenant: s.name})
		for k, v := range more {
			o.Object[k] = v
		}
		return o
	}
	out := []*unstructured.Unstructured{object("v1", "Namespace", "", s.namespace, nil)}
	for _, set := range s.sets {
		out = append(out, object(v1alpha1.GroupVersion.String(), "ClusterSetBinding", s.namespace, set, map[string]any{"spec": map[string]any{"clusterSet": set}}))
	}
	const rbac = "rbac.authorization.k8s.io"
	subject := func(kind, name string) any { return map[string]any{"kind": kind, "name": name, "apiGroup": rbac} }
	role := func(name string) map[string]any {
		return map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": name}
	}
	team := []any{map[string]any{"kind": "ServiceAccount", "name": serviceAccountName(s.name), "namespace": atoll.SystemNamespace}}
	// Sources of the namespace write by this account, which the team itself may make.
	team = append(team, map[string]any{"kind": "ServiceAccount", "name": v1alpha1.DefaultSourceAccount, "namespace": s.namespace})
	for _, u := range s.users {
		team = append(team, subject("User", u))
	}
	for _, g := range s.groups {
		team = append(team, subject("Group", g))
	}
	viewers := []any{}
	for _, g := range s.viewers {
		viewers = append(viewers, subject("Group", g))
	}
	return append(out,
		object("v1", "ServiceAccount", atoll.SystemNamespace, serviceAccountName(s.name), nil),
		object(rbac+"/v1", "RoleBinding", s.namespace, teamBinding, map[string]any{"roleRef": role(teamRole), "subjects": team}),
		object(rbac+"/v1", "RoleBinding", s.namespace, viewerBinding, map[string]any{"roleRef": role(viewerRole), "subjects": viewers}),
	)
}

var resources = map[string]schema.GroupVersionResource{
	"Namespace":         {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":    {Version: "v1", Resource: "serviceaccounts"},
	"RoleBinding":       {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterSetBinding": client.ClusterSetBindings,
}

func (s tenantSpec) applyObject(ctx context.Context, c *client.Connection, o *unstructured.Unstructured) error {
	return c.ForceApply(ctx, "tenant "+s.name, fieldManager, resources[o.GetKind()], o)
}

// removeStaleSetBindings takes away bindings that an earlier create made and this one does not
// name.
func (s tenantSpec) removeStaleSetBindings(ctx context.Context, c *client.Connection) error {
	bindings, err := client.List[v1alpha1.ClusterSetBinding](ctx, c, client.ClusterSetBindings, s.namespace, metav1.ListOptions{LabelSelector: atoll.LabelTenant + "=" + s.name})
	if err != nil {
		return err
	}
	for _, b := range bindings {
		if slices.Contains(s.sets, b.Spec.ClusterSet) {
			continue
		}
		err := c.Dynamic.Resource(client.ClusterSetBindings).Namespace(s.namespace).Delete(ctx, b.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("unbind tenant %s from cluster set %s: %w", s.name, b.Spec.ClusterSet, c.ExplainError(err))
		}
	}
	return nil
}
