package offline

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
)

// readStrategy adds a RolloutStrategy.
func (w *World) readStrategy(_ atoll.ItemKey, u *unstructured.Unstructured) error {
	return readInto(&w.strategies, u, nil)
}

// readClusterStrategy adds a ClusterRolloutStrategy.
func (w *World) readClusterStrategy(_ atoll.ItemKey, u *unstructured.Unstructured) error {
	return readInto(&w.clusterStrategies, u, nil)
}

// worldStrategies is the rollout strategies of a World.
type worldStrategies struct {
	rollouts map[types.NamespacedName]*v1alpha1.Rollout
	enforced rollout.Enforcement
}

// GetRollout returns the rollout of a strategy.
func (s worldStrategies) GetRollout(key types.NamespacedName) (*v1alpha1.Rollout, bool) {
	r, ok := s.rollouts[key]
	return r, ok
}

// ListEnforcedFor lists the ClusterRolloutStrategies that select a namespace with these labels, by name.
func (s worldStrategies) ListEnforcedFor(namespaceLabels map[string]string) []string {
	return s.enforced.ListFor(namespaceLabels)
}

// listStrategies returns the strategies among the files.
func (w *World) listStrategies() worldStrategies {
	out := worldStrategies{rollouts: map[types.NamespacedName]*v1alpha1.Rollout{}}
	for _, s := range w.strategies {
		out.rollouts[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = &s.Spec
	}
	for _, s := range w.clusterStrategies {
		out.rollouts[types.NamespacedName{Name: s.Name}] = &s.Spec.Rollout
		out.enforced = out.enforced.WithStrategy(s.Name, s.Spec.EnforcedFor)
	}
	return out
}

// namespaceLabels returns the labels that a namespace has on a hub: those of the files, and its name.
func (w *World) namespaceLabels(name string) map[string]string {
	out := map[string]string{}
	if u, ok := w.namespaces[name]; ok {
		maps.Copy(out, u.GetLabels())
	}
	out[corev1.LabelMetadataName] = name
	return out
}

// resolveSource returns what the winner states for a Bundle, with the placement and the rollout to which it refers. missing is an object that it
// names and that the files do not have; its reason is empty where they have all.
func (w *World) resolveSource(strategies worldStrategies, winner *policymatch.Candidate, namespace string) (intent policymatch.Intent, missing Unplaced) {
	spec, why := w.resolvePlacement(winner, namespace)
	if why != "" {
		return intent, Unplaced{Why: why, Reason: atoll.ReasonPlacementMissing}
	}
	scope := rollout.StrategyScope{SourceKind: winner.Source.Kind, Namespace: namespace, NamespaceLabels: w.namespaceLabels(namespace)}
	choice := rollout.ChooseStrategy(strategies, scope, &spec)
	if choice.Missing != nil {
		return intent, Unplaced{Why: "the " + choice.Missing.String() + " that its policy refers to is not among the files", Reason: atoll.ReasonRolloutStrategyMissing}
	}
	spec.Rollout = choice.Rollout
	return policymatch.Intent{Spec: spec, Strategy: choice.Strategy}, Unplaced{}
}
