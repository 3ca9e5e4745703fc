package policymatch

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// ParentRef names the object for which a controller made another object.
type ParentRef struct {
	// Key has the namespace of the child. A parent without a namespace has none.
	Key atoll.ItemKey
	UID string
}

// newParentRef returns the reference to a controller of an object in a namespace.
func newParentRef(ref *metav1.OwnerReference, namespace string) ParentRef {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return ParentRef{}
	}
	return ParentRef{Key: atoll.ItemKey{Group: gv.Group, Kind: ref.Kind, Namespace: namespace, Name: ref.Name}, UID: string(ref.UID)}
}

// Parents decide about single objects, and find their parents.
type Parents interface {
	// DecideWithoutParent returns what places an object, without regard to its parent.
	DecideWithoutParent(sub Subject) Decision
	// FindParent returns the parent of an object; false when it is not there, or is being deleted.
	FindParent(sub Subject) (parent Subject, found bool)
}

// MaxAncestors bounds how far up the parents of an object are followed.
const MaxAncestors = 8

// DecideWithParents returns what places an object. An object that nothing places by itself, and that a
// controller made, goes where its parent goes.
func DecideWithParents(p Parents, sub Subject) Decision {
	return decideWithAncestorLimit(p, sub, MaxAncestors)
}

func decideWithAncestorLimit(p Parents, sub Subject, left int) Decision {
	d := p.DecideWithoutParent(sub)
	if !d.isOpenToParent() || sub.Parent.Key.Kind == "" || left == 0 || childExclusionReason(sub) != "" {
		return d
	}
	parent, found := p.FindParent(sub)
	if !found {
		d.IsParentMissing, d.ReasonCode = true, atoll.ReasonParentMissing
		d.Reason += fmt.Sprintf(", and its parent %s is not on the hub", sub.Controller)
		return d
	}
	return d.inheritParentDecision(sub, parent, decideWithAncestorLimit(p, parent, left-1))
}

// isOpenToParent reports whether neither a policy nor an annotation states anything about the object.
func (d Decision) isOpenToParent() bool {
	return d.Winner == nil && (d.ReasonCode == atoll.ReasonNotSelected || d.ReasonCode == atoll.ReasonMachineMade)
}

// inheritParentDecision returns the decision about a child from the decision about its parent.
func (d Decision) inheritParentDecision(sub, parent Subject, of Decision) Decision {
	d.Parent, d.IsParentMissing, d.Root = &parent, of.IsParentMissing, of.Root
	if of.Winner == nil {
		d.ReasonCode = atoll.ReasonParentUnplaced
		d.Reason += fmt.Sprintf(", and nothing places its parent %s: %s", sub.Controller, of.Reason)
		return d
	}
	if d.Root == nil {
		d.Root = &parent
	}
	d.Winner, d.SkippedReason = of.Winner, ""
	d.ReasonCode, d.Reason = atoll.ReasonJoinsParent, fmt.Sprintf("a controller made it for %s, and it goes where that goes", sub.Controller)
	return d
}

// BundleOf returns the Bundle of an object that the decision places, and its group. A child is in the
// Bundle of its parent. A child of a parent without a namespace is in a Bundle of its own namespace, from
// the same source.
func (d Decision) BundleOf(sub Subject) (BundleID, string) {
	placed := d.PlacedSubject(sub)
	id, group := BundleForSubject(*d.Winner, placed)
	id.Namespace = sub.Key.Namespace
	if d.PlacesNamespaceWithObjects(sub) {
		id.Namespace = sub.Key.Name
	}
	return id, group
}

// PlacesNamespaceWithObjects returns whether a Namespace is placed by what places the objects in it, so that their Bundle carries
// it. A policy that selects Namespaces by name or by kind has them as items of a ClusterBundle.
func (d Decision) PlacesNamespaceWithObjects(sub Subject) bool {
	w := d.Winner
	return w != nil && sub.Key.IsNamespace() && (w.isWide || w.level == levelHubDefault || w.level == levelNamespace)
}

// PlacedSubject returns the object that the winner selects: sub itself, or the uppermost of its parents.
func (d Decision) PlacedSubject(sub Subject) Subject {
	if d.Root != nil {
		return *d.Root
	}
	return sub
}

// childExclusionReason returns why an object does not join its parent; empty when it does.
func childExclusionReason(s Subject) string {
	if why := UnselectableReason(s); why != "" {
		return why
	}
	if memberGroups[s.Parent.Key.Group] && memberKinds[GroupKindOf(s.Key)] {
		return "made by a controller of every member"
	}
	if s.Key.IsNamespace() {
		return "placed by itself alone"
	}
	s.Controller = ""
	return DefaultExclusionReason(s)
}

// memberGroups have the kinds from which the controllers of every member make objects of memberKinds.
var memberGroups = map[string]bool{"": true, "apps": true, "batch": true}

var memberKinds = map[schema.GroupKind]bool{
	{Kind: "Pod"}: true, {Kind: "PersistentVolumeClaim"}: true, replicaSetKind: true, controllerRevisionKind: true, endpointsKind: true, endpointSliceKind: true,
}
