package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/agent/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Namespace is what is known of a namespace of the member.
type Namespace struct {
	// Labels that it has; nil where it does not exist.
	Labels labels.Set
	// Ours: Atoll made it, or took it over, so that its labels are a hub's.
	Ours bool
}

// SelectsByNamespaceLabels reports whether a rule of the policy depends on labels of namespaces.
func (p *Policy) SelectsByNamespaceLabels() bool {
	return p != nil && p.closed == "" && p.selector != nil
}

// NeedsNamespaceLabels reports whether it takes the labels of the object's namespace to decide.
func (p *Policy) NeedsNamespaceLabels(key atoll.ItemKey) bool {
	if !p.SelectsByNamespaceLabels() {
		return false
	}
	ns := key.TargetNamespace()
	return ns != "" && !matchAny(p.spec.Namespaces.Allowed, ns) && !matchAny(p.spec.Namespaces.Denied, ns)
}

// ApplyRefusal returns why the object must not be applied; empty: it may be. The namespace counts only
// if NeedsNamespaceLabels.
func (p *Policy) ApplyRefusal(key atoll.ItemKey, ns Namespace) string {
	if why := neverAppliedReason(key); why != "" {
		return why
	}
	if p == nil {
		return ""
	}
	if p.closed != "" {
		return p.closed
	}
	for _, why := range []string{p.scopeRefusal(key), p.namespaceRefusal(key, ns), p.kindRefusal(key)} {
		if why != "" {
			return why
		}
	}
	return ""
}

// NamedAccountRefusal returns why the object must not be applied with the ServiceAccount that the hub names for it, as
// NAMESPACE/NAME; account is empty where it names none. Empty: it may be.
func (p *Policy) NamedAccountRefusal(key atoll.ItemKey, account string) string {
	if p == nil || p.closed != "" {
		return ""
	}
	const at = " (spec.namedServiceAccount): name one on the hub, by serviceAccount in itemRules or the annotation " + atoll.AnnotationServiceAccount
	namespace, _, _ := strings.Cut(account, "/")
	switch p.spec.NamedServiceAccount {
	case v1alpha1.NamedServiceAccountRequired:
		if account == "" {
			return p.name + " requires a ServiceAccount for each object" + at
		}
	case v1alpha1.NamedServiceAccountOwnNamespace:
		if account == "" || namespace != key.TargetNamespace() {
			return p.name + " requires a ServiceAccount of the object's own namespace" + at
		}
	}
	return ""
}

// RemovalRefusal returns why an object that Atoll applied must not be deleted or released; empty: it may
// be.
func (p *Policy) RemovalRefusal(key atoll.ItemKey, ns Namespace) string {
	switch {
	case p == nil:
		return ""
	case p.closed != "":
		return p.closed
	case p.spec.Removal != v1alpha1.RemovalDeny:
		return ""
	}
	if why := p.ApplyRefusal(key, ns); why != "" {
		return why + "; nor may it be removed (spec.removal)"
	}
	return ""
}

// neverAppliedReason returns why no hub applies an object, whatever a policy allows: what limits the agent, and
// where its own state lies.
func neverAppliedReason(key atoll.ItemKey) string {
	group := v1alpha1.GroupVersion.Group
	switch {
	case key.Group == group, key.Kind == "CustomResourceDefinition" && key.Name == v1alpha1.AgentPolicyResource+"."+group,
		key.Kind == "APIService" && strings.HasSuffix(key.Name, "."+group): // by which another server would answer that there is none
		return "what limits the agent is this cluster's administrator's alone: no hub applies it"
	case key.TargetNamespace() == atoll.SystemNamespace:
		return "namespace " + atoll.SystemNamespace + " is the agent's own in this cluster: no hub applies anything there"
	}
	return ""
}

// refusalText returns the refusal in words.
func (p *Policy) refusalText(what, field string) string {
	return fmt.Sprintf("%s does not allow %s (spec.%s): the administrator of this cluster must allow it, or it must be placed elsewhere", p.name, what, field)
}

func (p *Policy) scopeRefusal(key atoll.ItemKey) string {
	if key.Namespace != "" {
		return ""
	}
	switch p.spec.ClusterScoped {
	case v1alpha1.ClusterScopedDeny:
		return p.refusalText("objects outside of namespaces", "clusterScoped")
	case v1alpha1.ClusterScopedNamespacesOnly:
		if !key.IsNamespace() {
			return p.refusalText("objects outside of namespaces but namespaces themselves", "clusterScoped")
		}
	}
	return ""
}

func (p *Policy) namespaceRefusal(key atoll.ItemKey, at Namespace) string {
	ns, s := key.TargetNamespace(), p.spec.Namespaces
	switch {
	case ns == "" || s == nil:
		return ""
	case matchAny(s.Denied, ns):
		return p.refusalText("namespace "+ns, "namespaces.denied")
	case len(s.Allowed) == 0 && p.selector == nil, matchAny(s.Allowed, ns):
		return ""
	case p.selector != nil && at.Labels != nil && !at.Ours && p.selector.Matches(at.Labels):
		return ""
	}
	return p.refusalText("namespace "+ns, "namespaces")
}

func (p *Policy) kindRefusal(key atoll.ItemKey) string {
	s := p.spec.Kinds
	name := key.Kind
	if key.Group != "" {
		name += "." + key.Group
	}
	switch {
	case s == nil:
		return ""
	case matchesKindRule(s.Denied, key):
		return p.refusalText("kind "+name, "kinds.denied")
	case len(s.Allowed) == 0, matchesKindRule(s.Allowed, key):
		return ""
	}
	return p.refusalText("kind "+name, "kinds.allowed")
}

func matchesKindRule(rules []v1alpha1.KindRule, key atoll.ItemKey) bool {
	return slices.ContainsFunc(rules, func(r v1alpha1.KindRule) bool {
		return matchWildcard(r.Group, key.Group) && (len(r.Kinds) == 0 || matchAny(r.Kinds, key.Kind))
	})
}
