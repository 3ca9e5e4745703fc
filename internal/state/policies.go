package state

import (
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds/script"
)

// PolicyTable is the table of propagation and override policies, and of interpreters.
type PolicyTable struct {
	mu      sync.RWMutex
	byScope map[policyScope]map[string]client.Object
	library *script.Library // of all ResourceInterpreters; nil: there are none
	notifier[PolicyKey]
}

// PolicyKey names a policy.
type PolicyKey struct{ Kind, Namespace, Name string }

type policyScope struct{ kind, namespace string }

func newPolicies() *PolicyTable {
	return &PolicyTable{byScope: map[policyScope]map[string]client.Object{}}
}

// PropagationPolicies lists the namespace's PropagationPolicies by name.
func (p *PolicyTable) PropagationPolicies(ns string) []*v1alpha1.PropagationPolicy {
	return listPolicies[*v1alpha1.PropagationPolicy](p, policyScope{"PropagationPolicy", ns})
}

// ClusterPropagationPolicies lists the ClusterPropagationPolicies by name.
func (p *PolicyTable) ClusterPropagationPolicies() []*v1alpha1.ClusterPropagationPolicy {
	return listPolicies[*v1alpha1.ClusterPropagationPolicy](p, policyScope{"ClusterPropagationPolicy", ""})
}

// GetPropagationPolicy returns the policy of that name.
func (p *PolicyTable) GetPropagationPolicy(ns, name string) (*v1alpha1.PropagationPolicy, bool) {
	return getPolicy[*v1alpha1.PropagationPolicy](p, policyScope{"PropagationPolicy", ns}, name)
}

// GetClusterPropagationPolicy returns the policy of that name.
func (p *PolicyTable) GetClusterPropagationPolicy(name string) (*v1alpha1.ClusterPropagationPolicy, bool) {
	return getPolicy[*v1alpha1.ClusterPropagationPolicy](p, policyScope{"ClusterPropagationPolicy", ""}, name)
}

// OverridePolicies lists the namespace's OverridePolicies by name.
func (p *PolicyTable) OverridePolicies(ns string) []*v1alpha1.OverridePolicy {
	return listPolicies[*v1alpha1.OverridePolicy](p, policyScope{"OverridePolicy", ns})
}

// ClusterOverridePolicies lists the ClusterOverridePolicies by name.
func (p *PolicyTable) ClusterOverridePolicies() []*v1alpha1.ClusterOverridePolicy {
	return listPolicies[*v1alpha1.ClusterOverridePolicy](p, policyScope{"ClusterOverridePolicy", ""})
}

// GetInterpreter returns the interpreter of that name.
func (p *PolicyTable) GetInterpreter(name string) (*v1alpha1.ResourceInterpreter, bool) {
	return getPolicy[*v1alpha1.ResourceInterpreter](p, policyScope{script.Kind, ""}, name)
}

// InterpreterLibrary returns the compiled ResourceInterpreters; nil where there are none.
func (p *PolicyTable) InterpreterLibrary() *script.Library {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.library
}

// compileInterpreters compiles the interpreters that changed. The caller holds mu.
func (p *PolicyTable) compileInterpreters() {
	var all []*v1alpha1.ResourceInterpreter
	for _, o := range p.byScope[policyScope{script.Kind, ""}] {
		all = append(all, o.(*v1alpha1.ResourceInterpreter))
	}
	if len(all) == 0 {
		p.library = nil
		return
	}
	p.library = p.library.WithInterpreters(all)
}

// Subscribe subscribes to policies whose spec changed, that were added or deleted. Changes of their status
// are in the table and notify no subscriber.
func (p *PolicyTable) Subscribe(fn func(kind, ns, name string)) {
	p.addSubscriber(func(k PolicyKey) { fn(k.Kind, k.Namespace, k.Name) })
}

// Get returns a policy of any kind.
func (p *PolicyTable) Get(key PolicyKey) (client.Object, bool) {
	return getPolicy[client.Object](p, policyScope{key.Kind, key.Namespace}, key.Name)
}

// EachKey calls fn with the key of each propagation and override policy, in no order. fn must not block, nor read the table.
func (p *PolicyTable) EachKey(fn func(PolicyKey)) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for scope, all := range p.byScope {
		if scope.kind == script.Kind {
			continue
		}
		for name := range all {
			fn(PolicyKey{scope.kind, scope.namespace, name})
		}
	}
}

func listPolicies[T client.Object](p *PolicyTable, scope policyScope) []T {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]T, 0, len(p.byScope[scope]))
	for _, o := range p.byScope[scope] {
		out = append(out, o.(T))
	}
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func getPolicy[T client.Object](p *PolicyTable, scope policyScope, name string) (T, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	o, ok := p.byScope[scope][name].(T)
	return o, ok
}

func policyKindOf(obj client.Object) string {
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

func (p *PolicyTable) put(obj client.Object) {
	kind := policyKindOf(obj)
	if p.replaceObject(kind, obj) {
		p.notifyAll(PolicyKey{kind, obj.GetNamespace(), obj.GetName()})
	}
}

// replaceObject stores a policy, and reports whether it differs from the stored one.
func (p *PolicyTable) replaceObject(kind string, obj client.Object) (isNew bool) {
	scope := policyScope{kind, obj.GetNamespace()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byScope[scope] == nil {
		p.byScope[scope] = map[string]client.Object{}
	}
	old := p.byScope[scope][obj.GetName()]
	p.byScope[scope][obj.GetName()] = obj
	isNew = old == nil || old.GetUID() != obj.GetUID() || old.GetGeneration() != obj.GetGeneration()
	if kind == script.Kind { // one that is supposed may have the generation that there is
		p.compileInterpreters()
	}
	return isNew
}

func (p *PolicyTable) removeObject(obj client.Object) {
	kind := policyKindOf(obj)
	p.dropObjectRecord(kind, obj)
	p.notifyAll(PolicyKey{kind, obj.GetNamespace(), obj.GetName()})
}

// dropObjectRecord removes a policy.
func (p *PolicyTable) dropObjectRecord(kind string, obj client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byScope[policyScope{kind, obj.GetNamespace()}], obj.GetName())
	if kind == script.Kind {
		p.compileInterpreters()
	}
}
