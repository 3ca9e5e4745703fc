package rollout

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// Strategies are the rollout strategies of a hub, or of files.
type Strategies interface {
	// GetRollout returns the rollout of a strategy, which is not to be changed. An empty namespace means a ClusterRolloutStrategy.
	GetRollout(key types.NamespacedName) (*v1alpha1.Rollout, bool)
	// ListEnforcedFor lists the ClusterRolloutStrategies that select a namespace with these labels, by name.
	ListEnforcedFor(namespaceLabels map[string]string) []string
}

// StrategyScope is the place for which a rollout is chosen.
type StrategyScope struct {
	// SourceKind is the kind of the Bundle's source.
	SourceKind string
	// Namespace of the Bundle; empty for a ClusterBundle, in which no strategy is enforced.
	Namespace string
	// NamespaceLabels are the labels of the namespace.
	NamespaceLabels map[string]string
}

// StrategyChoice is the rollout of a Bundle, and the strategy that it comes from.
type StrategyChoice struct {
	// Rollout; nil: none is stated.
	Rollout *v1alpha1.Rollout
	// Strategy that the rollout comes from; nil: the source states the rollout itself, or states none.
	Strategy *v1alpha1.AppliedStrategy
	// Outranked are further strategies that select the namespace, by name. The first one by name is enforced.
	Outranked []string
	// Missing is the strategy that the source names and that does not exist; nil: it exists, or does not count.
	Missing *v1alpha1.AppliedStrategy
}

// ChooseStrategy returns the rollout of a Bundle whose source states spec: that of the strategy that is enforced for the namespace, that of the
// strategy to which the source refers, or the source's own. The strategies may be nil.
func ChooseStrategy(s Strategies, scope StrategyScope, spec *v1alpha1.PropagationSpec) StrategyChoice {
	if c, isEnforced := chooseEnforced(s, scope); isEnforced {
		return c
	}
	key, refers := ReferencedStrategy(scope.SourceKind, scope.Namespace, spec)
	if !refers {
		return StrategyChoice{Rollout: spec.Rollout}
	}
	named := &v1alpha1.AppliedStrategy{Kind: StrategyKind(key), Name: key.Name}
	if s != nil {
		if r, ok := s.GetRollout(key); ok {
			return StrategyChoice{Rollout: r, Strategy: named}
		}
	}
	return StrategyChoice{Missing: named}
}

// chooseEnforced returns the rollout of the first strategy that is enforced for the namespace; false: there is none.
func chooseEnforced(s Strategies, scope StrategyScope) (StrategyChoice, bool) {
	if s == nil || scope.Namespace == "" {
		return StrategyChoice{}, false
	}
	names := s.ListEnforcedFor(scope.NamespaceLabels)
	for i, name := range names {
		// A strategy can be deleted between the two reads.
		if r, ok := s.GetRollout(types.NamespacedName{Name: name}); ok {
			return StrategyChoice{
				Rollout: r, Outranked: names[i+1:],
				Strategy: &v1alpha1.AppliedStrategy{Kind: v1alpha1.KindClusterRolloutStrategy, Name: name, Enforced: true},
			}, true
		}
	}
	return StrategyChoice{}, false
}

// ReferencedStrategy returns the strategy to which a policy refers. Its namespace is empty for a ClusterRolloutStrategy, the only kind that a
// cluster policy can name.
func ReferencedStrategy(sourceKind, namespace string, spec *v1alpha1.PropagationSpec) (key types.NamespacedName, refers bool) {
	ref := spec.RolloutRef
	if ref == nil {
		return key, false
	}
	if sourceKind != v1alpha1.SourcePropagationPolicy || ref.Kind == v1alpha1.KindClusterRolloutStrategy {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: ref.Name}, true
}

// StrategyKind returns the kind of the strategy that a key names.
func StrategyKind(key types.NamespacedName) string {
	if key.Namespace == "" {
		return v1alpha1.KindClusterRolloutStrategy
	}
	return v1alpha1.KindRolloutStrategy
}

// Enforcement is the ClusterRolloutStrategies that are enforced for namespaces, by name. The zero value is empty.
type Enforcement []enforcedStrategy

type enforcedStrategy struct {
	name     string
	selector labels.Selector
}

// WithStrategy returns a copy in which a strategy is enforced as stated; nil: it is enforced for no namespace. A selector that cannot be
// parsed, which admission refuses, selects no namespace.
func (e Enforcement) WithStrategy(name string, stated *v1alpha1.StrategyEnforcement) Enforcement {
	out := slices.DeleteFunc(slices.Clone(e), func(one enforcedStrategy) bool { return one.name == name })
	if stated == nil {
		return out
	}
	selector, err := metav1.LabelSelectorAsSelector(&stated.NamespaceSelector)
	if err != nil {
		return out
	}
	out = append(out, enforcedStrategy{name, selector})
	slices.SortFunc(out, func(a, b enforcedStrategy) int { return strings.Compare(a.name, b.name) })
	return out
}

// ListFor lists the strategies that select a namespace with these labels, by name.
func (e Enforcement) ListFor(namespaceLabels map[string]string) (names []string) {
	for _, one := range e {
		if one.selector.Matches(labels.Set(namespaceLabels)) {
			names = append(names, one.name)
		}
	}
	return names
}
