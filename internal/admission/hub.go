package admission

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policycheck"
	"atoll.dev/atoll/internal/policymatch"
)

// Hub is what admission reads of the rest of the hub, by subject. A part is nil until it is
// there.
type Hub struct {
	Placed    Placed
	Templates Templates
	// Definitions return which fields a custom kind has.
	Definitions Definitions
	Sets        Sets
	Properties  Properties
	Removals    Removals
	Drift       Drift
	References  References
	Sources     Sources
	SourceSets  SourceSets
	Policies    Policies
}

// Sources are the Sources on the hub.
type Sources interface {
	InNamespace(namespace string) []*v1alpha1.Source
}

// SourceSets are the SourceSets on the hub.
type SourceSets interface {
	InNamespace(namespace string) []*v1alpha1.SourceSet
}

// Placed are the objects that the hub places.
type Placed interface {
	// IsPlacedOrNeeded reports whether the object is placed, or needed by something that is.
	IsPlacedOrNeeded(sub policymatch.Subject) bool
	// IsPlacedFromOutsideNamespace reports whether nothing in the object's namespace places the object, and
	// the hub's default placement or a parent without a namespace does.
	IsPlacedFromOutsideNamespace(sub policymatch.Subject) bool
	// TwoControllersWarning warns of an object that a controller on the hub makes of a parent on
	// which a controller in members may act, too; empty: there is nothing to warn of.
	TwoControllersWarning(sub policymatch.Subject) string
	// IsUnexpectedlyUnplaced reports whether nothing places an object that people place by itself.
	IsUnexpectedlyUnplaced(sub policymatch.Subject) bool
	// CheckItemSize reports whether an object, if it is placed, can be sent: nil, or why it is
	// too large.
	CheckItemSize(t *unstructured.Unstructured) error
}

// Templates are the objects in namespaces.
type Templates interface {
	// FirstProtectedTemplate names an object in the namespace that may not be deleted.
	FirstProtectedTemplate(namespace string) (atoll.ItemKey, bool)
	// FirstProtectedOfKind names an object of the kind that may not be deleted.
	FirstProtectedOfKind(kind schema.GroupKind) (atoll.ItemKey, bool)
	// TemplateKinds lists the kinds that objects in the namespace are of.
	TemplateKinds(namespace string) []schema.GroupKind
	// FirstDividedWithoutReplicaOverrides names an object that the selectors choose and whose replicas its
	// placement divides. An empty namespace means any.
	FirstDividedWithoutReplicaOverrides(namespace string, selectors []v1alpha1.ResourceSelector) (atoll.ItemKey, bool)
}

// Properties are those that agents report.
type Properties interface {
	// PlacementPropertyNames lists those that the hub's admin listed, sorted.
	PlacementPropertyNames() []string
}

// Removals are the Clusters that leave the fleet.
type Removals interface {
	// HashCleanPlan gives the hash of what a cluster would lose that is cleaned, "" for nothing; an
	// error where that is not known.
	HashCleanPlan(ctx context.Context, c *v1alpha1.Cluster) (string, error)
}

// Drift is what clusters report of objects that they observe.
type Drift interface {
	// CheckDriftOrder returns why an order to correct drift of the Bundle's objects does nothing; nil: it does.
	CheckDriftOrder(bundleUID string, order atoll.DriftOrder) error
	// PendingDriftOrders returns what of orders of the Bundle the hub has not taken, and clusters still report.
	PendingDriftOrders(bundleUID string, orders []atoll.DriftOrder) []atoll.DriftOrder
}

// currentHub returns the rest of the hub; false until it is there.
func (p *AdmissionPlugin) currentHub() (Hub, bool) {
	if p.Hub == nil {
		return Hub{}, false
	}
	return p.Hub()
}

// currentSets returns the table of ClusterSets; false until it is there.
func (p *AdmissionPlugin) currentSets() (Sets, bool) {
	hub, _ := p.currentHub()
	return hub.Sets, hub.Sets != nil
}

// refuseUnlistedProperties refuses all properties until those that steer placement are known.
func (p *AdmissionPlugin) refuseUnlistedProperties() policycheck.PropertyRefusal {
	return policycheck.RefuseUnlisted(p.listedProperties())
}

// listedProperties lists the properties that steer placement; nil until they are known.
func (p *AdmissionPlugin) listedProperties() []string {
	hub, _ := p.currentHub()
	if hub.Properties == nil {
		return nil
	}
	return hub.Properties.PlacementPropertyNames()
}

// hashCleanPlan is Removals.HashCleanPlan, and an error until the tables are there.
func (p *AdmissionPlugin) hashCleanPlan(ctx context.Context, c *v1alpha1.Cluster) (string, error) {
	hub, ok := p.currentHub()
	if !ok {
		return "", errors.New("the hub has just been started")
	}
	return hub.Removals.HashCleanPlan(ctx, c)
}
