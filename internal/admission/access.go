package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// access is reading that a writer must be allowed, since it places what it selects.
type access struct {
	kind      schema.GroupKind
	resource  schema.GroupResource // looked up from kind when empty
	namespace string               // empty: everywhere, or cluster-scoped
	name      string               // empty: all
}

// dependencies are the kinds that objects take along.
func dependencies(namespace string) []access {
	var out []access
	for kind, resource := range map[string]string{
		"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts", "PersistentVolumeClaim": "persistentvolumeclaims",
	} {
		out = append(out, access{kind: schema.GroupKind{Kind: kind}, resource: schema.GroupResource{Resource: resource}, namespace: namespace})
	}
	return out
}

// inNamespaces are the built-in kinds that a namespace's annotation places.
var inNamespaces = []schema.GroupKind{
	{Kind: "ConfigMap"}, {Kind: "Secret"}, {Kind: "Service"}, {Kind: "ServiceAccount"}, {Kind: "PersistentVolumeClaim"}, {Kind: "Pod"},
	{Kind: "ResourceQuota"}, {Kind: "LimitRange"},
	{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
	{Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Group: "networking.k8s.io", Kind: "Ingress"}, {Group: "networking.k8s.io", Kind: "NetworkPolicy"},
	{Group: "policy", Kind: "PodDisruptionBudget"}, {Group: "autoscaling", Kind: "HorizontalPodAutoscaler"},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"},
}

// everything in a namespace: the built-in kinds, and those of what is there.
func (p *Plugin) everything(namespace string) []access {
	kinds := slices.Clone(inNamespaces)
	if hub, ok := p.Hub(); ok {
		for _, gk := range hub.Kinds(namespace) {
			if !slices.Contains(kinds, gk) {
				kinds = append(kinds, gk)
			}
		}
	}
	out := make([]access, 0, len(kinds))
	for _, gk := range kinds {
		out = append(out, access{kind: gk, namespace: namespace})
	}
	return out
}

// selected is what selectors choose; namespace is that of the policy, empty for a
// cluster policy.
func (p *Plugin) selected(namespace string, selectors []v1alpha1.ResourceSelector) []access {
	var out []access
	for _, rs := range selectors {
		gv, err := schema.ParseGroupVersion(rs.APIVersion)
		if err != nil {
			continue
		}
		x := access{kind: schema.GroupKind{Group: gv.Group, Kind: rs.Kind}, namespace: namespace, name: rs.Name}
		if namespace == "" {
			x.namespace = rs.Namespace
		}
		out = append(out, x)
	}
	return out
}

// mayRead refuses with the first kind that the user may not read, in words that tell
// which right is missing.
func (p *Plugin) mayRead(ctx context.Context, u user.Info, need []access) error {
	slices.SortFunc(need, func(a, b access) int { return strings.Compare(a.kind.String()+a.name, b.kind.String()+b.name) })
	for _, x := range need {
		if x.resource.Resource == "" {
			x.resource = p.resource(x.kind)
		}
		if p.allowed(ctx, u, "get", x) {
			continue
		}
		where, what := "in all namespaces", ""
		if x.namespace != "" {
			where = fmt.Sprintf("in namespace %q", x.namespace)
		}
		if x.name != "" {
			what = fmt.Sprintf("%q of ", x.name)
		}
		return fmt.Errorf("whoever places objects must be able to read them: %q may not get %s%s %s", u.GetName(), what, x.resource, where)
	}
	return nil
}

// MayGet tells whether the API server's authorizer lets the user read an object, or,
// without a name, every object of the kind in the namespace.
func (p *Plugin) MayGet(ctx context.Context, u user.Info, key atoll.ItemKey) bool {
	x := access{kind: schema.GroupKind{Group: key.Group, Kind: key.Kind}, namespace: key.Namespace, name: key.Name}
	x.resource = p.resource(x.kind)
	return p.allowed(ctx, u, "get", x)
}

func (p *Plugin) allowed(ctx context.Context, u user.Info, verb string, x access) bool {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, Namespace: x.namespace, APIGroup: x.resource.Group, APIVersion: "*",
		Resource: x.resource.Resource, Name: x.name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// resource of a kind; a guess for kinds that the hub does not serve yet.
func (p *Plugin) resource(gk schema.GroupKind) schema.GroupResource {
	if m, err := p.mapper.RESTMapping(gk); err == nil {
		return m.Resource.GroupResource()
	}
	guess, _ := meta.UnsafeGuessKindToResource(gk.WithVersion("v1"))
	return guess.GroupResource()
}

// namespaced tells whether objects of the kind live in namespaces; known is false
// for kinds that the hub does not serve yet.
func (p *Plugin) namespaced(gk schema.GroupKind) (namespaced, known bool) {
	m, err := p.mapper.RESTMapping(gk)
	if err != nil {
		return false, false
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, true
}
