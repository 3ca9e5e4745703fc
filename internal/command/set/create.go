package set

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// setAdminSpec specifies a set and its admins.
type setAdminSpec struct {
	name          string
	selector      *metav1.LabelSelector // nil: exclusive, or as it is
	users, groups []string
	lifetime      time.Duration
	server        string
}

// The shipped role of a set's admins, and what is made for them.
const (
	adminRole    = "atoll:cluster-admin"
	labelAdmins  = "atoll.dev/set-admins"
	fieldManager = "atoll-set"
	rbac         = "rbac.authorization.k8s.io"
)

// setServiceAccountName is the name of the ServiceAccount of a set's admin.
func setServiceAccountName(set string) string { return "set-admin-" + set }

// setRoleName returns the name of the ClusterRole that gives the verbs on the set, and of its
// binding; adminRoleBindingName that of the binding to the shipped role.
func setRoleName(set string) string          { return "atoll:set:" + set }
func adminRoleBindingName(set string) string { return "atoll:set-clusters:" + set }

func (s *setAdminSpec) validate(selector string) error {
	var errs []error
	for _, msg := range append(validation.IsDNS1123Subdomain(s.name), validation.IsValidLabelValue(s.name)...) {
		errs = append(errs, fmt.Errorf("the set's name %q is malformed: %s", s.name, msg))
	}
	if s.name == v1alpha1.DefaultClusterSet {
		errs = append(errs, fmt.Errorf("the set %s holds all clusters: an admin of all of them gets the group atoll:fleet-admins", s.name))
	}
	if err := client.CheckTokenLifetime(s.lifetime); err != nil {
		errs = append(errs, err)
	}
	if selector != "" {
		parsed, err := metav1.ParseToLabelSelector(selector)
		if s.selector = parsed; err != nil {
			errs = append(errs, fmt.Errorf("--selector %q is malformed: %w", selector, err))
		}
	}
	return errors.Join(errs...)
}

// createSetWithAdmins creates the set, and all that its admins need, in an order in which each part is of use
// as soon as it is there.
func createSetWithAdmins(ctx context.Context, c *client.Connection, s setAdminSpec) (kubeconfig []byte, until time.Time, err error) {
	if err := s.applyClusterSet(ctx, c); err != nil {
		return nil, time.Time{}, err
	}
	for _, o := range s.buildAdminObjects() {
		if err := s.applyOwnedObject(ctx, c, o); err != nil {
			return nil, time.Time{}, err
		}
	}
	return c.IssueKubeconfig(ctx, client.Access{Name: s.name, Account: setServiceAccountName(s.name), Lifetime: s.lifetime, Server: s.server})
}

// applyClusterSet makes the ClusterSet. An existing one keeps its selector unless another is stated: a
// change of the set's content moves no workload, but shows it as unfit.
func (s *setAdminSpec) applyClusterSet(ctx context.Context, c *client.Connection) error {
	_, err := client.Get[v1alpha1.ClusterSet](ctx, c, client.ClusterSets, "", s.name)
	there := err == nil
	if err != nil && !client.IsGone(err) {
		return err
	}
	if there && s.selector == nil {
		return nil
	}
	o := newObject(v1alpha1.GroupVersion.String(), "ClusterSet", "", s.name)
	o.Object["spec"] = map[string]any{}
	if s.selector != nil {
		labels, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.selector)
		if err != nil {
			return fmt.Errorf("write the selector: %w", err)
		}
		o.Object["spec"] = map[string]any{"clusterSelector": map[string]any{"selectorType": string(v1alpha1.SelectByLabels), "labelSelector": labels}}
	}
	return s.applyOwnedObject(ctx, c, o)
}

// buildAdminObjects returns the objects for the admins, in order.
func (s *setAdminSpec) buildAdminObjects() []*unstructured.Unstructured {
	role := newObject(rbac+"/v1", "ClusterRole", "", setRoleName(s.name))
	role.Object["rules"] = []any{map[string]any{
		"apiGroups": []any{v1alpha1.GroupVersion.Group}, "resources": []any{"clustersets"}, "resourceNames": []any{s.name}, "verbs": []any{"manage", "bind"},
	}}
	who := []any{map[string]any{"kind": "ServiceAccount", "name": setServiceAccountName(s.name), "namespace": atoll.SystemNamespace}}
	for _, u := range s.users {
		who = append(who, map[string]any{"kind": "User", "name": u, "apiGroup": rbac})
	}
	for _, g := range s.groups {
		who = append(who, map[string]any{"kind": "Group", "name": g, "apiGroup": rbac})
	}
	binding := func(name, role string) *unstructured.Unstructured {
		o := newObject(rbac+"/v1", "ClusterRoleBinding", "", name)
		o.Object["roleRef"] = map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": role}
		o.Object["subjects"] = who
		return o
	}
	out := []*unstructured.Unstructured{
		newObject("v1", "ServiceAccount", atoll.SystemNamespace, setServiceAccountName(s.name)),
		role, binding(setRoleName(s.name), setRoleName(s.name)), binding(adminRoleBindingName(s.name), adminRole),
	}
	for _, o := range out {
		o.SetLabels(map[string]string{labelAdmins: s.name})
	}
	return out
}

func newObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	o.SetName(name)
	o.SetNamespace(namespace)
	return o
}

var resources = map[string]schema.GroupVersionResource{
	"ClusterSet":         client.ClusterSets,
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":        {Group: rbac, Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: rbac, Version: "v1", Resource: "clusterrolebindings"},
}

func (s *setAdminSpec) applyOwnedObject(ctx context.Context, c *client.Connection, o *unstructured.Unstructured) error {
	return c.ForceApply(ctx, "set "+s.name, fieldManager, resources[o.GetKind()], o)
}

// removeSetAdmins removes what was made for the admins of a set, the bindings first, and with them the set;
// found reports whether there was any of it.
func removeSetAdmins(ctx context.Context, c *client.Connection, name string, withSet bool) (found bool, err error) {
	list := []*unstructured.Unstructured{
		newObject("", "ClusterRoleBinding", "", adminRoleBindingName(name)), newObject("", "ClusterRoleBinding", "", setRoleName(name)),
		newObject("", "ClusterRole", "", setRoleName(name)), newObject("", "ServiceAccount", atoll.SystemNamespace, setServiceAccountName(name)),
	}
	if withSet {
		list = append(list, newObject("", "ClusterSet", "", name))
	}
	for _, o := range list {
		err := c.Dynamic.Resource(resources[o.GetKind()]).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		switch {
		case err == nil:
			found = true
		case !apierrors.IsNotFound(err):
			return found, fmt.Errorf("take away %s %s of set %s: %w", o.GetKind(), o.GetName(), name, c.ExplainError(err))
		}
	}
	return found, nil
}
