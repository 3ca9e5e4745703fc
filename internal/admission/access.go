package admission

import (
	"cmp"
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
	"atoll.dev/atoll/internal/policymatch"
)

// requiredRead is reading that a writer must be allowed, since it places what it selects.
type requiredRead struct {
	kind      schema.GroupKind
	resource  schema.GroupResource // looked up from kind when empty
	namespace string               // empty: everywhere, or cluster-scoped
	name      string               // empty: all
}

// requiredDependencyReads returns the access to the kinds that objects take along.
func requiredDependencyReads(namespace string) []requiredRead {
	var out []requiredRead
	for kind, resource := range map[string]string{
		"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts", "PersistentVolumeClaim": "persistentvolumeclaims",
	} {
		out = append(out, requiredRead{kind: schema.GroupKind{Kind: kind}, resource: schema.GroupResource{Resource: resource}, namespace: namespace})
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

// requiredNamespaceReads returns the access to everything in a namespace: the built-in kinds, and those of what is there.
func (p *AdmissionPlugin) requiredNamespaceReads(namespace string) []requiredRead {
	kinds := slices.Clone(inNamespaces)
	if hub, ok := p.currentHub(); ok {
		for _, gk := range hub.Templates.TemplateKinds(namespace) {
			if !slices.Contains(kinds, gk) {
				kinds = append(kinds, gk)
			}
		}
	}
	out := make([]requiredRead, 0, len(kinds))
	for _, gk := range kinds {
		out = append(out, requiredRead{kind: gk, namespace: namespace})
	}
	return out
}

// requiredSelectorReads is what selectors choose; namespace is that of the policy, empty for a
// cluster policy.
func (p *AdmissionPlugin) requiredSelectorReads(namespace string, selectors []v1alpha1.ResourceSelector) []requiredRead {
	var out []requiredRead
	for _, rs := range selectors {
		if rs.Kind == policymatch.AllKinds {
			out = append(out, p.requiredReadsOfAllKinds(cmp.Or(namespace, rs.Namespace), policymatch.SelectorKind(rs))...)
			continue
		}
		gv, err := schema.ParseGroupVersion(rs.APIVersion)
		if err != nil {
			continue
		}
		x := requiredRead{kind: schema.GroupKind{Group: gv.Group, Kind: rs.Kind}, namespace: namespace, name: rs.Name}
		if namespace == "" {
			x.namespace = rs.Namespace
		}
		out = append(out, x)
	}
	return out
}

// requiredReadsOfAllKinds is what a selector of all kinds chooses, of one group or of all.
func (p *AdmissionPlugin) requiredReadsOfAllKinds(namespace string, kind schema.GroupKind) []requiredRead {
	if namespace != "" && kind.Group == policymatch.AllKinds {
		return p.requiredNamespaceReads(namespace)
	}
	return []requiredRead{{kind: kind, resource: schema.GroupResource{Group: kind.Group, Resource: "*"}, namespace: namespace}}
}

// mayRead refuses with the first kind that the user may not read, with the missing right in the
// message.
func (p *AdmissionPlugin) mayRead(ctx context.Context, u user.Info, need []requiredRead) error {
	slices.SortFunc(need, func(a, b requiredRead) int { return strings.Compare(a.kind.String()+a.name, b.kind.String()+b.name) })
	for _, x := range need {
		if x.resource.Resource == "" {
			x.resource = p.resourceOf(x.kind)
		}
		if p.isAllowed(ctx, u, "get", x) {
			continue
		}
		where, what := "in all namespaces", ""
		if x.namespace != "" {
			where = fmt.Sprintf("in namespace %q", x.namespace)
		}
		if x.name != "" {
			what = fmt.Sprintf("%q of ", x.name)
		}
		return fmt.Errorf("a user that places objects must be able to read them: %q may not get %s%s %s", u.GetName(), what, x.resource, where)
	}
	return nil
}

// MayGet reports whether the API server's authorizer lets the user read an object, or,
// without a name, every object of the kind in the namespace.
func (p *AdmissionPlugin) MayGet(ctx context.Context, u user.Info, key atoll.ItemKey) bool {
	x := requiredRead{kind: schema.GroupKind{Group: key.Group, Kind: key.Kind}, namespace: key.Namespace, name: key.Name}
	x.resource = p.resourceOf(x.kind)
	return p.isAllowed(ctx, u, "get", x)
}

func (p *AdmissionPlugin) isAllowed(ctx context.Context, u user.Info, verb string, x requiredRead) bool {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: u, Verb: verb, Namespace: x.namespace, APIGroup: x.resource.Group, APIVersion: "*",
		Resource: x.resource.Resource, Name: x.name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// resourceOf returns the resource of a kind; a guess for kinds that the hub does not serve yet.
func (p *AdmissionPlugin) resourceOf(gk schema.GroupKind) schema.GroupResource {
	if m, err := p.mapper.RESTMapping(gk); err == nil {
		return m.Resource.GroupResource()
	}
	guess, _ := meta.UnsafeGuessKindToResource(gk.WithVersion("v1"))
	return guess.GroupResource()
}

// isNamespaced reports whether objects of the kind live in namespaces; known is false
// for kinds that the hub does not serve yet.
func (p *AdmissionPlugin) isNamespaced(gk schema.GroupKind) (isNamespaced, known bool) {
	m, err := p.mapper.RESTMapping(gk)
	if err != nil {
		return false, false
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, true
}
