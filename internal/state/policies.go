package state

import (
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/interpret/script"
)

// Policies is the table of propagation and override policies, and of interpreters.
type Policies struct {
	mu      sync.RWMutex
	byNS    map[policyScope]map[string]client.Object
	library *script.Library // of all ResourceInterpreters; nil: there are none
	notifier[PolicyKey]
}

// PolicyKey names a policy.
type PolicyKey struct{ Kind, Namespace, Name string }

type policyScope struct{ kind, namespace string }

func newPolicies() *Policies { return &Policies{byNS: map[policyScope]map[string]client.Object{}} }

// Propagation lists the namespace's PropagationPolicies by name.
func (p *Policies) Propagation(ns string) []*v1alpha1.PropagationPolicy {
	return list[*v1alpha1.PropagationPolicy](p, policyScope{"PropagationPolicy", ns})
}

// ClusterPropagation lists the ClusterPropagationPolicies by name.
func (p *Policies) ClusterPropagation() []*v1alpha1.ClusterPropagationPolicy {
	return list[*v1alpha1.ClusterPropagationPolicy](p, policyScope{"ClusterPropagationPolicy", ""})
}

// PropagationPolicy of that name.
func (p *Policies) PropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool) {
	return get[*v1alpha1.PropagationPolicy](p, policyScope{"PropagationPolicy", ns}, name)
}

// ClusterPropagationPolicy of that name.
func (p *Policies) ClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool) {
	return get[*v1alpha1.ClusterPropagationPolicy](p, policyScope{"ClusterPropagationPolicy", ""}, name)
}

// Overrides lists the namespace's OverridePolicies by name.
func (p *Policies) Overrides(ns string) []*v1alpha1.OverridePolicy {
	return list[*v1alpha1.OverridePolicy](p, policyScope{"OverridePolicy", ns})
}

// ClusterOverrides lists the ClusterOverridePolicies by name.
func (p *Policies) ClusterOverrides() []*v1alpha1.ClusterOverridePolicy {
	return list[*v1alpha1.ClusterOverridePolicy](p, policyScope{"ClusterOverridePolicy", ""})
}

// Interpreter of that name.
func (p *Policies) Interpreter(name string) (*v1alpha1.ResourceInterpreter, bool) {
	return get[*v1alpha1.ResourceInterpreter](p, policyScope{script.Kind, ""}, name)
}

// Interpreters are what all ResourceInterpreters know; nil where there are none.
func (p *Policies) Interpreters() *script.Library {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.library
}

// compile the interpreters that changed. The caller holds mu.
func (p *Policies) compile() {
	var all []*v1alpha1.ResourceInterpreter
	for _, o := range p.byNS[policyScope{script.Kind, ""}] {
		all = append(all, o.(*v1alpha1.ResourceInterpreter))
	}
	if len(all) == 0 {
		p.library = nil
		return
	}
	p.library = p.library.Next(all)
}

// Subscribe to policies whose spec changed, that came or went. What is written into
// their status is in the table and not told.
func (p *Policies) Subscribe(fn func(kind, ns, name string)) {
	p.subscribe(func(k PolicyKey) { fn(k.Kind, k.Namespace, k.Name) })
}

// Get a policy of any kind.
func (p *Policies) Get(key PolicyKey) (client.Object, bool) {
	return get[client.Object](p, policyScope{key.Kind, key.Namespace}, key.Name)
}

func list[T client.Object](p *Policies, scope policyScope) []T {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]T, 0, len(p.byNS[scope]))
	for _, o := range p.byNS[scope] {
		out = append(out, o.(T))
	}
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func get[T client.Object](p *Policies, scope policyScope, name string) (T, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	o, ok := p.byNS[scope][name].(T)
	return o, ok
}

func kindOf(obj client.Object) string {
	switch obj.(type) {
	case *v1alpha1.PropagationPolicy:
		return "PropagationPolicy"
	case *v1alpha1.ClusterPropagationPolicy:
		return "ClusterPropagationPolicy"
	case *v1alpha1.OverridePolicy:
		return "OverridePolicy"
	case *v1alpha1.ResourceInterpreter:
		return script.Kind
	}
	return "ClusterOverridePolicy"
}

func (p *Policies) put(obj client.Object) {
	kind := kindOf(obj)
	scope := policyScope{kind, obj.GetNamespace()}
	p.mu.Lock()
	if p.byNS[scope] == nil {
		p.byNS[scope] = map[string]client.Object{}
	}
	old := p.byNS[scope][obj.GetName()]
	p.byNS[scope][obj.GetName()] = obj
	anew := old == nil || old.GetUID() != obj.GetUID() || old.GetGeneration() != obj.GetGeneration()
	if kind == script.Kind { // one that is supposed may have the generation that there is
		p.compile()
	}
	p.mu.Unlock()
	if anew {
		p.notify(PolicyKey{kind, obj.GetNamespace(), obj.GetName()})
	}
}

func (p *Policies) drop(obj client.Object) {
	kind := kindOf(obj)
	p.mu.Lock()
	delete(p.byNS[policyScope{kind, obj.GetNamespace()}], obj.GetName())
	if kind == script.Kind {
		p.compile()
	}
	p.mu.Unlock()
	p.notify(PolicyKey{kind, obj.GetNamespace(), obj.GetName()})
}
