package atoll

import (
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// ClusterView is what selectors see of a Cluster: what the hub set, and of what the
// agent reports the properties that the hub's admin listed.
type ClusterView struct {
	Name   string
	Labels map[string]string
	Region string
	// Zone is the one zone of the cluster; empty where it has several.
	Zone string
	// Zones are all zones of a cluster that has several; nil for others.
	Zones    []string
	Provider string
	// Sets: names of the ClusterSets that it is in, sorted.
	Sets []string
	// Properties that are listed; nil where nothing that agents report counts.
	Properties map[string]string
	// Versions in which the cluster serves kinds, for rendering alone; nil: not known.
	Versions MemberVersions
}

// HubVersions are the API versions between which the hub converts objects. A value never changes: other
// conversions are another value. Methods may run concurrently.
type HubVersions interface {
	// ListOtherVersions returns the other API versions to which the hub converts objects of a kind, best first.
	ListOtherVersions(apiVersion, kind string) []string
	// ConvertObject returns what ConvertObject of MemberVersions returns.
	ConvertObject(object map[string]any, apiVersion string) (map[string]any, error)
}

// MemberVersions are the API versions that a cluster serves, with the conversions to them. A value never
// changes. Clusters that serve the same kinds share one, and equal values give equal results. Methods may
// run concurrently.
type MemberVersions interface {
	// ListReplacements returns the API versions of a kind that the cluster serves and the hub converts to, best
	// first. It is empty where the cluster serves apiVersion.
	ListReplacements(apiVersion, kind string) []string
	// ConvertObject returns the object in another API version of its kind, and shares no memory with
	// it. The error names the fields that the version cannot hold.
	ConvertObject(object map[string]any, apiVersion string) (map[string]any, error)
}

// ClusterViewOf returns the view of a Cluster, without properties and sets, which are not in the object. The labels
// and zones are shared with the object.
func ClusterViewOf(c *v1alpha1.Cluster) ClusterView {
	view := ClusterView{
		Name: c.Name, Labels: c.Labels,
		Region: c.Spec.Region, Zone: c.Spec.Zone, Provider: c.Spec.Provider,
	}
	switch len(c.Spec.Zones) {
	case 0:
	case 1:
		view.Zone = c.Spec.Zones[0]
	default:
		view.Zone, view.Zones = "", c.Spec.Zones
	}
	return view
}

// ListZones returns the zones of the cluster; empty where none is stated. The list is not changed.
func (c *ClusterView) ListZones() []string {
	if len(c.Zones) == 0 && c.Zone != "" {
		return []string{c.Zone}
	}
	return c.Zones
}

// IsClusterSpecField reports whether the key of a field requirement is a field of the Cluster's
// spec; all others are properties.
func IsClusterSpecField(key string) bool {
	return key == "region" || key == "zone" || key == "provider"
}

// HasZone reports whether the cluster has the zone.
func (c *ClusterView) HasZone(zone string) bool {
	return zone != "" && zone == c.Zone || slices.Contains(c.Zones, zone)
}

// FieldValue returns the field of the cluster: region, zone, provider or a listed property; empty when it has
// none. The zone of a cluster with several is empty: ListFieldValues returns them.
func (c *ClusterView) FieldValue(key string) string {
	switch key {
	case "region":
		return c.Region
	case "zone":
		return c.Zone
	case "provider":
		return c.Provider
	}
	return c.Properties[key]
}

// ListFieldValues returns the values of a field of which the cluster may have several; nil: FieldValue returns the
// one value.
func (c *ClusterView) ListFieldValues(key string) []string {
	if key == "zone" {
		return c.Zones
	}
	return nil
}
