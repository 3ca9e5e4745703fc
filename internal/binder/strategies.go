package binder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// Strategies is the table of rollout strategies.
type Strategies interface {
	rollout.Strategies
	// Get a strategy; an empty namespace means a ClusterRolloutStrategy.
	Get(key types.NamespacedName) (state.RolloutStrategy, bool)
	List() []state.RolloutStrategy
	Subscribe(func(key types.NamespacedName))
}

// chooseStrategy chooses the rollout of a Bundle in a namespace whose source states spec.
func (b *Binder) chooseStrategy(sourceKind, namespace string, spec *v1alpha1.PropagationSpec) rollout.StrategyChoice {
	scope := rollout.StrategyScope{SourceKind: sourceKind, Namespace: namespace}
	if b.Strategies == nil {
		return rollout.ChooseStrategy(nil, scope, spec)
	}
	scope.NamespaceLabels, _ = b.namespaceLabels(namespace)
	return rollout.ChooseStrategy(b.Strategies, scope, spec)
}

// ExplainRollout returns the rollout of a Bundle as it would be decided now. It is empty when the source of the Bundle is gone.
func (b *Binder) ExplainRollout(id policymatch.BundleID, source v1alpha1.BundleSource) rollout.StrategyChoice {
	spec := b.policySpecOf(id, source)
	if spec == nil {
		spec = &v1alpha1.PropagationSpec{} // annotations and the default placement state no rollout
	}
	return b.chooseStrategy(source.Kind, id.Namespace, spec)
}

// namespaceLabels returns the labels of a namespace; false: the hub has no such namespace.
func (b *Binder) namespaceLabels(name string) (map[string]string, bool) {
	if name == "" {
		return nil, false
	}
	ns, ok := b.Namespaces.Get(name)
	if !ok {
		return nil, false
	}
	return ns.Labels, true
}

// isNamespaceUnread reports whether a Bundle's namespace is not in the table, so that the strategies that are enforced there are unknown.
func (b *Binder) isNamespaceUnread(name string) bool {
	if b.Strategies == nil || name == "" {
		return false
	}
	_, ok := b.namespaceLabels(name)
	return !ok
}

// strategiesFor lists the strategies that select a namespace, by name. The first one is enforced.
func (b *Binder) strategiesFor(namespace string) []string {
	if b.Strategies == nil {
		return nil
	}
	labels, ok := b.namespaceLabels(namespace)
	if !ok {
		return nil
	}
	return b.Strategies.ListEnforcedFor(labels)
}

// missingStrategyReason explains, for a policy whose strategy does not exist, the effect and what to do; else it is empty. A strategy
// that is enforced for the namespace comes first.
func (b *Binder) missingStrategyReason(kind, namespace string, spec *v1alpha1.PropagationSpec) string {
	missing := b.chooseStrategy(kind, namespace, spec).Missing
	if missing == nil {
		return ""
	}
	return fmt.Sprintf("%s, which rolloutRef names, does not exist: what is placed keeps its rollout, and nothing new is placed. Create it, or name another", missing)
}

// keptStrategy returns the strategy that the kept rollout of a Bundle comes from. Once the policy's own strategy is missing, none is enforced.
func keptStrategy(is *v1alpha1.BundleSpec, isMissing bool) *v1alpha1.AppliedStrategy {
	if is.RolloutStrategy == nil || !isMissing {
		return is.RolloutStrategy
	}
	return &v1alpha1.AppliedStrategy{Kind: is.RolloutStrategy.Kind, Name: is.RolloutStrategy.Name}
}

// strategyChanged touches the Bundles of the policies that name a strategy, and those in the namespaces in which the strategy is enforced.
// The number of its steps grows with the namespaces, because only people edit strategies.
func (b *Binder) strategyChanged(key types.NamespacedName) {
	for _, policy := range b.strategyUses.listPolicies(key) {
		b.referrerChanged(policy)
	}
	if key.Namespace == "" {
		for _, ns := range b.Namespaces.List() {
			b.updateEnforcement(ns, key.Name)
		}
	}
	b.enqueueStrategy(key)
}

// updateEnforcement touches the Bundles in a namespace when another strategy is enforced there than before, or the edited one is. It requests
// the statuses of the strategies that select the namespace, or did.
func (b *Binder) updateEnforcement(namespace, edited string) {
	before, now := b.lastEnforcement[namespace], b.strategiesFor(namespace)
	isOther := !slices.Equal(before[:min(1, len(before))], now[:min(1, len(now))])
	isEdited := len(now) > 0 && now[0] == edited
	if _, exists := b.namespaceLabels(namespace); exists && (isOther || isEdited) {
		b.touchBundles(b.ownership.bundlesInNamespace(namespace)...)
	}
	if !slices.Equal(before, now) {
		for _, name := range slices.Concat(before, now) {
			b.enqueueStrategy(types.NamespacedName{Name: name})
		}
	}
	b.setEnforcement(namespace, now)
}

// setEnforcement records the strategies that select a namespace.
func (b *Binder) setEnforcement(namespace string, names []string) {
	if len(names) == 0 {
		delete(b.lastEnforcement, namespace)
		return
	}
	if b.lastEnforcement == nil {
		b.lastEnforcement = map[string][]string{}
	}
	b.lastEnforcement[namespace] = names
}

// recordStrategyUse records the strategy that a policy names, and requests the statuses of the strategies whose use changes; nil: the policy
// is deleted.
func (b *Binder) recordStrategyUse(policy PolicyKey, spec *v1alpha1.PropagationSpec) {
	for _, key := range b.strategyUses.setUse(policy, spec) {
		b.enqueueStrategy(key)
	}
}

// enqueueStrategy requests the status of a strategy.
func (b *Binder) enqueueStrategy(key types.NamespacedName) {
	b.policyStatus.enqueuePolicy(strategyKey(key))
}

// strategyKey returns the key by which the status of a strategy is written.
func strategyKey(key types.NamespacedName) PolicyKey {
	return PolicyKey{rollout.StrategyKind(key), key.Namespace, key.Name}
}

// strategyUses has which policies name which strategies. The zero value is empty. It is safe for concurrent use.
type strategyUses struct {
	mu         sync.RWMutex
	byPolicy   map[PolicyKey]types.NamespacedName
	byStrategy map[types.NamespacedName]map[PolicyKey]bool
}

// setUse records the strategy that a policy names, and returns the strategies whose use changes; nil: the policy is deleted.
func (u *strategyUses) setUse(policy PolicyKey, spec *v1alpha1.PropagationSpec) (changed []types.NamespacedName) {
	var now types.NamespacedName
	refers := false
	if spec != nil {
		now, refers = rollout.ReferencedStrategy(policy.Kind, policy.Namespace, spec)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	before, had := u.byPolicy[policy]
	if had == refers && before == now {
		return nil
	}
	if had {
		delete(u.byPolicy, policy)
		removeFromSet(u.byStrategy, before, policy)
		changed = append(changed, before)
	}
	if refers {
		if u.byPolicy == nil {
			u.byPolicy, u.byStrategy = map[PolicyKey]types.NamespacedName{}, map[types.NamespacedName]map[PolicyKey]bool{}
		}
		u.byPolicy[policy] = now
		addToSet(u.byStrategy, now, policy)
		changed = append(changed, now)
	}
	return changed
}

// listPolicies lists the policies that name a strategy, in no order.
func (u *strategyUses) listPolicies(key types.NamespacedName) []PolicyKey {
	u.mu.RLock()
	defer u.mu.RUnlock()
	return slices.Collect(maps.Keys(u.byStrategy[key]))
}

// copyFrom makes it a copy of another one.
func (u *strategyUses) copyFrom(other *strategyUses) {
	other.mu.RLock()
	defer other.mu.RUnlock()
	u.byPolicy, u.byStrategy = maps.Clone(other.byPolicy), map[types.NamespacedName]map[PolicyKey]bool{}
	if u.byPolicy == nil {
		u.byPolicy = map[PolicyKey]types.NamespacedName{}
	}
	cloneSets(u.byStrategy, other.byStrategy)
}

// enqueueStrategies rechecks the status of all strategies.
func (r *policyStatusWriter) enqueueStrategies() {
	if r.binder.Strategies == nil {
		return
	}
	for _, s := range r.binder.Strategies.List() {
		r.loop.EnqueueRecheck(strategyKey(s.Key()), statusDelay)
	}
}

// writeStrategyStatus writes the status of a strategy when it has changed.
func (r *policyStatusWriter) writeStrategyStatus(ctx context.Context, key PolicyKey) error {
	if r.binder.Strategies == nil {
		return nil
	}
	s, ok := r.binder.Strategies.Get(types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
	if !ok {
		return nil
	}
	use := strategyUse{policies: len(r.binder.strategyUses.listPolicies(s.Key()))}
	if s.Spec.EnforcedFor != nil {
		use.enforced, use.outranked = r.binder.findEnforcedNamespaces(s.Meta.Name)
	}
	old, next := s.ToObject(), s
	next.Status = strategyStatus(s, use)
	return r.patchStatus(ctx, old, next.ToObject(), apiequality.Semantic.DeepEqual(s.Status, next.Status))
}

// findEnforcedNamespaces returns in how many namespaces a ClusterRolloutStrategy is enforced, and those that it selects and in which
// another one is.
func (b *Binder) findEnforcedNamespaces(name string) (enforced int, outranked []outrankedNamespace) {
	for _, ns := range b.Namespaces.List() {
		switch names := b.strategiesFor(ns); {
		case !slices.Contains(names, name):
		case names[0] == name:
			enforced++
		default:
			outranked = append(outranked, outrankedNamespace{ns, names[0]})
		}
	}
	return enforced, outranked
}

// outrankedNamespace is a namespace that a strategy selects, and the strategy that is enforced there in its place.
type outrankedNamespace struct{ namespace, strategy string }

// strategyUse is how much a strategy is used.
type strategyUse struct {
	policies, enforced int
	outranked          []outrankedNamespace
}

// strategyStatus returns the status of a strategy.
func strategyStatus(s state.RolloutStrategy, use strategyUse) v1alpha1.ClusterRolloutStrategyStatus {
	now := *s.Status.DeepCopy()
	now.ObservedGeneration, now.Policies, now.EnforcedNamespaces = s.Meta.Generation, int32(use.policies), int32(use.enforced)
	c := metav1.Condition{Type: v1alpha1.StrategyInUse, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonStrategyUsed), ObservedGeneration: s.Meta.Generation}
	var uses []string
	if use.policies > 0 {
		uses = append(uses, "rolloutRef of "+countPolicies(use.policies)+" names it")
	}
	if use.enforced > 0 {
		uses = append(uses, "it is enforced in "+phrase.CountNoun(use.enforced, "namespace"))
	}
	if c.Message = strings.Join(uses, ", and "); len(uses) == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonStrategyUnused), "no policy names it in rolloutRef, and it is enforced in no namespace"
	}
	meta.SetStatusCondition(&now.Conditions, c)
	if s.Spec.EnforcedFor == nil {
		meta.RemoveStatusCondition(&now.Conditions, v1alpha1.StrategyEnforced)
		return now
	}
	meta.SetStatusCondition(&now.Conditions, enforcedCondition(s.Meta.Generation, use))
	return now
}

// countPolicies returns text such as "2 policies".
func countPolicies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

// enforcedCondition is the condition of a strategy that states enforcedFor. It names one namespace at most.
func enforcedCondition(generation int64, use strategyUse) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.StrategyEnforced, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonEnforced), ObservedGeneration: generation,
		Message: "it is the rollout of all Bundles in " + phrase.CountNoun(use.enforced, "namespace"),
	}
	switch {
	case len(use.outranked) > 0:
		first := use.outranked[0]
		c.Status, c.Reason = metav1.ConditionFalse, string(atoll.ReasonOutranked)
		c.Message = fmt.Sprintf("it is enforced in %d of %s that it selects: in namespace %s, %s %s comes first by name. Select each namespace by one strategy",
			use.enforced, phrase.CountNoun(use.enforced+len(use.outranked), "namespace"), first.namespace, v1alpha1.KindClusterRolloutStrategy, first.strategy)
	case use.enforced == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonNoNamespaceSelected), "no namespace has the labels that enforcedFor.namespaceSelector selects"
	}
	return c
}
