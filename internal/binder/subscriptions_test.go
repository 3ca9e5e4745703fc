package binder

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
)

// The following tables keep what subscribes to them.
type (
	subscribedTemplates struct {
		fakeTemplates
		changed func(atoll.ItemKey)
		synced  func()
	}
	subscribedNamespaces struct {
		fakeNamespaces
		changed func(string)
	}
	subscribedPolicies struct {
		fakePolicies
		changed func(kind, ns, name string)
	}
	subscribedPlacements struct {
		placementTable
		changed func(types.NamespacedName)
	}
	subscribedStrategies struct {
		strategyTable
		changed func(types.NamespacedName)
	}
	subscribedSettings struct {
		childSettings
		changed func(string)
	}
	subscribedBundles struct {
		fakeBundles
		changed func(string)
	}
	subscribedRows struct {
		noRows
		changed func(string, []string)
	}
	subscribedClusters struct {
		Clusters
		changed func(string)
	}
)

func (x *subscribedTemplates) Subscribe(f func(atoll.ItemKey))               { x.changed = f }
func (x *subscribedTemplates) SubscribeSync(f func())                        { x.synced = f }
func (x *subscribedNamespaces) Subscribe(f func(string))                     { x.changed = f }
func (x *subscribedPolicies) Subscribe(f func(kind, ns, name string))        { x.changed = f }
func (x *subscribedPlacements) Subscribe(f func(types.NamespacedName))       { x.changed = f }
func (x *subscribedStrategies) Subscribe(f func(types.NamespacedName))       { x.changed = f }
func (x *subscribedSettings) Subscribe(f func(string))                       { x.changed = f }
func (x *subscribedBundles) Subscribe(f func(string))                        { x.changed = f }
func (x *subscribedRows) Subscribe(f func(bundleUID string, names []string)) { x.changed = f }
func (x *subscribedClusters) Subscribe(f func(string))                       { x.changed = f }

// A change of any table is an event of its own kind.
func TestEveryTableIsSubscribedTo(t *testing.T) {
	l, _ := newShopTables(t)
	templates := &subscribedTemplates{fakeTemplates: fakeTemplates{nil, nil, l}}
	namespaces, policies, placements := &subscribedNamespaces{}, &subscribedPolicies{}, &subscribedPlacements{}
	strategies, settings, bundles, rows, clusters := &subscribedStrategies{}, &subscribedSettings{}, &subscribedBundles{}, &subscribedRows{}, &subscribedClusters{}
	b := New(Options{Templates: templates, Kinds: templates, Namespaces: namespaces, Policies: policies, Overrides: fakePolicies{nil, nil, l},
		Placements: placements, Strategies: strategies, Settings: settings, Bundles: bundles, Rows: rows, Clusters: clusters, Revisions: fakeRevisions{nil, l}})
	web := newKey("Deployment", "web")
	edge := types.NamespacedName{Namespace: "shop", Name: "edge"}
	templates.changed(web)
	templates.synced()
	namespaces.changed("shop")
	policies.changed(policyKind, "shop", "web")
	placements.changed(edge)
	strategies.changed(edge)
	settings.changed("hub")
	bundles.changed("b")
	rows.changed("b", []string{"tokyo"})
	clusters.changed("tokyo")
	var got []tableEvent
	for e, ok := b.events.takeNext(); ok; e, ok = b.events.takeNext() {
		got = append(got, e)
	}
	want := []tableEvent{
		{template: web}, {kindsSynced: true}, {namespace: "shop"}, {policy: PolicyKey{policyKind, "shop", "web"}}, {placement: edge}, {strategy: edge},
		{settingsChanged: true}, {bundleUID: "b"}, {rowsOfBundle: "b"}, {clustersChanged: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %+v, want %+v", got, want)
	}
}
