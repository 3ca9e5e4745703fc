package binder

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// Placements is the table of Placements.
type Placements interface {
	// Get a Placement; an empty namespace means a ClusterPlacement.
	Get(key types.NamespacedName) (state.Placement, bool)
	Subscribe(func(key types.NamespacedName))
}

// intentWithPlacement returns what a policy states for a Bundle, with the placement that
// placementRef names. When that Placement does not exist, an existing Bundle keeps its placement
// and a new Bundle has no intent. A deleted Placement removes nothing.
func (b *Binder) intentWithPlacement(id policymatch.BundleID, kind string, spec v1alpha1.PropagationSpec) *policymatch.Intent {
	key, refers := state.ReferencedPlacement(kind, id.Namespace, &spec)
	if !refers {
		spec.Placement = atoll.WithPlacementDefaults(spec.Placement)
		return &policymatch.Intent{Spec: spec}
	}
	if pl, ok := b.findPlacement(key); ok {
		spec.Placement = atoll.WithPlacementDefaults(pl.Spec)
		return &policymatch.Intent{Spec: spec}
	}
	bundle, ok := b.Bundles.GetByName(id.Namespace, id.Name)
	if !ok {
		return nil
	}
	spec.Placement = bundle.Spec.Placement
	return &policymatch.Intent{Spec: spec}
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

// missingPlacementReasonForSource is missingPlacementReason for the source of a Bundle.
func (b *Binder) missingPlacementReasonForSource(id policymatch.BundleID, from bundleOrigin) string {
	spec := b.policySpecOf(id, from.source)
	if from.source.Kind == v1alpha1.SourceHubSettings {
		spec = b.hubDefaultSpec()
	}
	if spec == nil {
		return ""
	}
	return b.missingPlacementReason(from.source.Kind, id.Namespace, spec)
}

// MissingPlacementReason explains why no Bundle comes from a source: its Placement does not exist. It
// is empty when the Placement exists or the source refers to none.
func (b *Binder) MissingPlacementReason(id policymatch.BundleID, source v1alpha1.BundleSource) string {
	return b.missingPlacementReasonForSource(id, bundleOrigin{source: source})
}

// maxMissingPlacementEvents is how many objects of a Bundle get an Event about their missing
// Placement. The policy's condition covers all objects.
const maxMissingPlacementEvents = 100

// awaitPlacement waits for the Placement of a Bundle that does not exist yet. The Placement
// touches the Bundle when it comes. The policy reports the wait at once and the objects after a
// while: after a start a Placement can be read after its policies.
func (b *Binder) awaitPlacement(id policymatch.BundleID, why string, claimed []atoll.ItemKey) (again time.Duration) {
	if b.ReadOnly {
		return 0
	}
	if len(claimed) == 0 {
		b.missingPlacements.endWait(id)
		b.policyStatus.setProblems(id, atoll.ReasonPlacementMissing, nil)
		return 0
	}
	if now := time.Now(); now.Sub(b.missingPlacements.startWait(id, now)) < reportWaitAfter {
		return reportWaitAfter
	}
	problems := make([]bundlecontent.TemplateProblem, 0, min(len(claimed), maxMissingPlacementEvents))
	for _, key := range claimed[:min(len(claimed), maxMissingPlacementEvents)] {
		problems = append(problems, bundlecontent.TemplateProblem{Key: key, Err: errors.New(why)})
	}
	b.policyStatus.setProblems(id, atoll.ReasonPlacementMissing, problems)
	return 0
}

// missingPlacementCondition is the condition of a Bundle whose Placement was deleted.
func missingPlacementCondition(why string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(atoll.ReasonPlacementMissing), Message: why}
}

// placementChanged touches the Bundles of the policies that refer to a Placement.
func (b *Binder) placementChanged(key types.NamespacedName) {
	kind, policies := state.PoliciesOfPlacement(b.Policies, key)
	for _, p := range policies {
		b.policyOfPlacementChanged(PolicyKey{kind, p.Namespace, p.Name})
	}
	if spec := b.hubDefaultSpec(); spec != nil {
		if at, refers := state.ReferencedPlacement(v1alpha1.SourceHubSettings, "", spec); refers && at == key {
			b.policyOfPlacementChanged(PolicyKey{v1alpha1.SourceHubSettings, "", v1alpha1.HubSettingsName})
		}
	}
}

// policyOfPlacementChanged touches the Bundles of a policy, and requests its status.
func (b *Binder) policyOfPlacementChanged(key PolicyKey) {
	b.touchBundles(b.ownership.bundlesOfSource(key.Kind, key.Namespace, key.Name)...)
	b.policyStatus.enqueuePolicy(key)
}
