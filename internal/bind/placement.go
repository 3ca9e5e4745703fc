package bind

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// Placements is the table of Placements.
type Placements interface {
	// Get a Placement; an empty namespace means a ClusterPlacement.
	Get(key types.NamespacedName) (state.Placement, bool)
	Subscribe(func(key types.NamespacedName))
}

// reasonNoPlacement of conditions.
const reasonNoPlacement = "PlacementMissing"

// placed gives what a policy wants of a Bundle, with the placement that placementRef names.
// Where that does not exist, the Bundle keeps the one that it has, and one that is not there
// yet has no intent: a Placement that is gone takes nothing away.
func (b *Binder) placed(id claim.BundleID, kind string, spec v1alpha1.PropagationSpec) *claim.Intent {
	key, refers := refersTo(kind, id.Namespace, &spec)
	if !refers {
		spec.Placement = atoll.Placement(spec.Placement)
		return &claim.Intent{Spec: spec}
	}
	if pl, ok := b.placement(key); ok {
		spec.Placement = pl.Spec
		return &claim.Intent{Spec: spec}
	}
	bundle, ok := b.Bundles.ByName(id.Namespace, id.Name)
	if !ok {
		return nil
	}
	spec.Placement = bundle.Spec.Placement
	return &claim.Intent{Spec: spec}
}

// refersTo gives the Placement that a policy of a kind refers to: one of the policy's
// namespace, or one without for a cluster policy.
func refersTo(kind, namespace string, spec *v1alpha1.PropagationSpec) (key types.NamespacedName, refers bool) {
	if spec.PlacementRef == nil {
		return key, false
	}
	if kind == v1alpha1.SourceClusterPropagationPolicy {
		namespace = ""
	}
	return types.NamespacedName{Namespace: namespace, Name: spec.PlacementRef.Name}, true
}

func (b *Binder) placement(key types.NamespacedName) (state.Placement, bool) {
	if b.Placements == nil {
		return state.Placement{}, false
	}
	return b.Placements.Get(key)
}

// unplaced says of a policy whose Placement does not exist what that means and what to do;
// empty for any other.
func (b *Binder) unplaced(kind, namespace string, spec *v1alpha1.PropagationSpec) string {
	key, refers := refersTo(kind, namespace, spec)
	if !refers {
		return ""
	}
	if _, ok := b.placement(key); ok {
		return ""
	}
	what := "Placement " + key.String()
	if key.Namespace == "" {
		what = "ClusterPlacement " + key.Name
	}
	return fmt.Sprintf("%s, which placementRef names, does not exist: what is placed stays in its clusters, and nothing new is placed. Create it, or name another", what)
}

// unplacedSource is unplaced for the source of a Bundle.
func (b *Binder) unplacedSource(id claim.BundleID, from origin) string {
	switch from.source.Kind {
	case v1alpha1.SourcePropagationPolicy:
		if p, ok := b.Policies.PropagationPolicy(id.Namespace, from.source.Name); ok {
			return b.unplaced(from.source.Kind, id.Namespace, &p.Spec)
		}
	case v1alpha1.SourceClusterPropagationPolicy:
		if p, ok := b.Policies.ClusterPropagationPolicy(from.source.Name); ok {
			return b.unplaced(from.source.Kind, id.Namespace, &p.Spec)
		}
	}
	return ""
}

// Unplaced says of a Bundle that is to come from this source why it does not: the Placement
// that the policy refers to does not exist. Empty: it does, or the policy refers to none.
func (b *Binder) Unplaced(id claim.BundleID, source v1alpha1.BundleSource) string {
	return b.unplacedSource(id, origin{source: source})
}

// mostPlaceless objects of one Bundle are told that their Placement is missing; the policy
// says it of all.
const mostPlaceless = 100

// awaitPlacement that a Bundle which is not there yet is to have; its coming touches the
// Bundle. The policy says so, and where it takes long the objects do: a Placement may come
// after those who refer to it, for instance after a start.
func (b *Binder) awaitPlacement(id claim.BundleID, why string, claimed []atoll.ItemKey) {
	if b.ReadOnly {
		return
	}
	if len(claimed) == 0 {
		b.placeless.end(id)
		b.reports.problems(id, reasonNoPlacement, nil)
		return
	}
	if now := time.Now(); now.Sub(b.placeless.begin(id, now)) < waitsLong {
		b.queue.AddAfter(id, waitsLong)
		return
	}
	problems := make([]claim.Problem, 0, min(len(claimed), mostPlaceless))
	for _, key := range claimed[:min(len(claimed), mostPlaceless)] {
		problems = append(problems, claim.Problem{Key: key, Err: errors.New(why)})
	}
	b.reports.problems(id, reasonNoPlacement, problems)
}

// frozen is the condition of a Bundle whose Placement is gone.
func frozen(why string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: reasonNoPlacement, Message: why}
}

// placementChanged looks at the Bundles of the policies that refer to it. To find them all
// policies that may are asked: edits of Placements are people's.
func (b *Binder) placementChanged(key types.NamespacedName) {
	refer := func(kind, namespace, name string, spec *v1alpha1.PropagationSpec) {
		if at, refers := refersTo(kind, namespace, spec); refers && at == key {
			b.touch(b.claims.ofSource(kind, namespace, name)...)
			b.reports.touch(policyKey{kind, namespace, name})
		}
	}
	if key.Namespace == "" {
		for _, p := range b.Policies.ClusterPropagation() {
			refer(v1alpha1.SourceClusterPropagationPolicy, "", p.Name, &p.Spec)
		}
		return
	}
	for _, p := range b.Policies.Propagation(key.Namespace) {
		refer(v1alpha1.SourcePropagationPolicy, p.Namespace, p.Name, &p.Spec)
	}
}
