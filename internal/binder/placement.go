package binder

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// Placements is the table of Placements.
type Placements interface {
	// Get a Placement; an empty namespace means a ClusterPlacement.
	Get(key types.NamespacedName) (state.Placement, bool)
	Subscribe(func(key types.NamespacedName))
}

// resolveIntent returns what a source states for a Bundle, with the placement and the rollout to which it refers. When one of them does
// not exist, an existing Bundle keeps its own and a new Bundle has no intent. So a deleted Placement removes nothing, and a
// deleted strategy ends no stage.
func (b *Binder) resolveIntent(id policymatch.BundleID, kind string, spec v1alpha1.PropagationSpec) *policymatch.Intent {
	placement, found := b.referencedPlacement(id, kind, &spec)
	choice := b.chooseStrategy(kind, id.Namespace, &spec)
	spec.Placement, spec.Rollout = placement, choice.Rollout
	intent := &policymatch.Intent{Spec: spec, Strategy: choice.Strategy}
	isComplete, keepsRollout := found && choice.Missing == nil, choice.Missing != nil || b.isNamespaceUnread(id.Namespace)
	if isComplete && !keepsRollout {
		return intent
	}
	bundle, exists := b.Bundles.GetByName(id.Namespace, id.Name)
	switch {
	case !exists && !isComplete:
		return nil
	case !exists:
		return intent
	case !found:
		intent.Spec.Placement = bundle.Spec.Placement
	}
	if keepsRollout {
		intent.Spec.Rollout, intent.Strategy = bundle.Spec.Rollout, keptStrategy(&bundle.Spec, choice.Missing != nil)
	}
	return intent
}

// referencedPlacement returns the placement that a source states or refers to; false: it refers to one that does not exist.
func (b *Binder) referencedPlacement(id policymatch.BundleID, kind string, spec *v1alpha1.PropagationSpec) (v1alpha1.PlacementSpec, bool) {
	key, refers := state.ReferencedPlacement(kind, id.Namespace, spec)
	if !refers {
		return atoll.WithPlacementDefaults(spec.Placement), true
	}
	pl, ok := b.findPlacement(key)
	return atoll.WithPlacementDefaults(pl.Spec), ok
}

func (b *Binder) findPlacement(key types.NamespacedName) (state.Placement, bool) {
	if b.Placements == nil {
		return state.Placement{}, false
	}
	return b.Placements.Get(key)
}

// missingPlacementReason explains, for a policy whose Placement does not exist, the effect and
// what to do; else it is empty.
func (b *Binder) missingPlacementReason(kind, namespace string, spec *v1alpha1.PropagationSpec) string {
	key, refers := state.ReferencedPlacement(kind, namespace, spec)
	if !refers {
		return ""
	}
	if _, ok := b.findPlacement(key); ok {
		return ""
	}
	what := "Placement " + key.String()
	if key.Namespace == "" {
		what = "ClusterPlacement " + key.Name
	}
	return fmt.Sprintf("%s, which placementRef names, does not exist: what is placed stays in its clusters, and nothing new is placed. Create it, or name another", what)
}

// missingReference is an object that a source names and that does not exist.
type missingReference struct {
	reason atoll.Reason
	// why explains the effect and what to do; empty: all that the source names exists.
	why string
}

// findMissingReference returns the first object that a policy names and that does not exist: its Placement, or its strategy.
func (b *Binder) findMissingReference(kind, namespace string, spec *v1alpha1.PropagationSpec) missingReference {
	if why := b.missingPlacementReason(kind, namespace, spec); why != "" {
		return missingReference{atoll.ReasonPlacementMissing, why}
	}
	if why := b.missingStrategyReason(kind, namespace, spec); why != "" {
		return missingReference{atoll.ReasonRolloutStrategyMissing, why}
	}
	return missingReference{}
}

// missingReferenceOfSource is findMissingReference for the source of a Bundle.
func (b *Binder) missingReferenceOfSource(id policymatch.BundleID, source v1alpha1.BundleSource) missingReference {
	spec := b.policySpecOf(id, source)
	if source.Kind == v1alpha1.SourceHubSettings {
		spec = b.hubDefaultSpec()
	}
	if spec == nil {
		return missingReference{}
	}
	return b.findMissingReference(source.Kind, id.Namespace, spec)
}

// MissingReference explains why no Bundle comes from a source: its Placement or its strategy does not exist. The
// text is empty when both exist, or the source refers to none.
func (b *Binder) MissingReference(id policymatch.BundleID, source v1alpha1.BundleSource) (atoll.Reason, string) {
	missing := b.missingReferenceOfSource(id, source)
	return missing.reason, missing.why
}

// maxMissingPlacementEvents is how many objects of a Bundle get an Event about what their policy names and what is
// missing. The policy's condition covers all objects.
const maxMissingPlacementEvents = 100

// awaitReference waits for the Placement or the strategy of a Bundle that does not exist yet. The missing object
// touches the Bundle when it comes. The policy reports the wait at once and the objects after a
// while: after a start a Placement can be read after its policies.
func (b *Binder) awaitReference(id policymatch.BundleID, missing missingReference, claimed []atoll.ItemKey) (again time.Duration) {
	if b.ReadOnly {
		return 0
	}
	if len(claimed) == 0 {
		b.missingReferences.endWait(id)
		b.policyStatus.setProblems(id, missing.reason, nil)
		return 0
	}
	if now := time.Now(); now.Sub(b.missingReferences.startWait(id, now)) < reportWaitAfter {
		return reportWaitAfter
	}
	b.policyStatus.setProblems(id, missing.reason, newProblems(claimed[:min(len(claimed), maxMissingPlacementEvents)], missing.why))
	return 0
}

// unboundCondition is the condition of a Bundle whose Placement or strategy was deleted.
func (m missingReference) unboundCondition() metav1.Condition {
	return metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(m.reason), Message: m.why}
}

// placementChanged touches the Bundles of the policies that refer to a Placement.
func (b *Binder) placementChanged(key types.NamespacedName) {
	kind, policies := state.PoliciesOfPlacement(b.Policies, key)
	for _, p := range policies {
		b.referrerChanged(PolicyKey{kind, p.Namespace, p.Name})
	}
	if spec := b.hubDefaultSpec(); spec != nil {
		if at, refers := state.ReferencedPlacement(v1alpha1.SourceHubSettings, "", spec); refers && at == key {
			b.referrerChanged(PolicyKey{v1alpha1.SourceHubSettings, "", v1alpha1.HubSettingsName})
		}
	}
}

// referrerChanged touches the Bundles of a policy that refers to a changed object, and requests its status.
func (b *Binder) referrerChanged(key PolicyKey) {
	b.touchBundles(b.ownership.bundlesOfSource(key.Kind, key.Namespace, key.Name)...)
	b.policyStatus.enqueuePolicy(key)
}
