// Package state holds the hub's tables in memory, and the fenced writers of engine objects.
// Tables have indexes. Watches of the hub's own API server feed them, or of its store where
// that costs less.
//
// Contract: readers never block on the network (Revisions.GetContent may, once per revision)
// and get shared values that they must not change. Every table notifies its subscribers of
// changes. Subscribers are called one after the other from the watch, so they may only note the
// change, for example in a queue. Writers put the API server's answer into the table at once,
// so that a writer reads its own write. An event that is older than the table's object is
// dropped. A table reports whether it is synced; absences in an unsynced table mean nothing.
package state

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// HubTables is all tables. Its fields are set by New and do not change.
type HubTables struct {
	Client     client.Client
	Clusters   *ClusterTable
	Views      *ClusterViews
	Settings   *HubSettingsTable
	Bundles    *BundleTable
	Rows       *RowTable
	Drifted    *DriftedRows
	Revisions  *RevisionTable
	Templates  *TemplateTable
	Namespaces *NamespaceTable
	Policies   *PolicyTable
	// Customizations are translated to interpreters; no other component reads them.
	Customizations *CustomizationTable
	Placements     *PlacementTable
	Decisions      *DecisionTable
	Strategies     *RolloutStrategyTable
	Scores         *ClusterScoreTable
	Sets           *ClusterSetTable
	Hub            *HubStateTable
	Repositories   *RepositoryTable
	Sources        *SourceTable
	SourceSets     *SourceSetTable
	Notifications  *NotificationTable

	log         *slog.Logger
	cache       cache.Cache
	tableSource TableSource
	// bundleInformer feeds the table of Bundles; nil before Run.
	bundleInformer atomic.Pointer[toolscache.SharedIndexInformer]
}

// NewScheme returns the scheme of everything that the hub's typed clients speak.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, enginev1.AddToScheme, karmada.AddToScheme, multicluster.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("state: the scheme is built of linked types: %v", err))
		}
	}
	return s
}

// TableSource of tables that are not fed by the API server.
type TableSource interface {
	// ListerWatcherFor gives what lists and watches the objects of the example's kind for a table,
	// where that is another than the API server, which is api.
	ListerWatcherFor(example runtime.Object, api toolscache.ListerWatcher) toolscache.ListerWatcher
	// RequestBundleProgress makes the watches of Bundles report the store's present version; false
	// where they cannot.
	RequestBundleProgress(ctx context.Context) bool
}

// New makes the tables over the API server that cfg reaches, and of kinds that come from
// elsewhere over their source; converter converts objects of built-in kinds; c writes, and reads what no table has, and hubKey keys the
// names of revisions. log gets the objects that a table cannot read. Nothing is read before Run.
func New(c client.Client, cfg *rest.Config, source TableSource, converter ObjectConverter, hubKey []byte, log *slog.Logger) (*HubTables, error) {
	revisions, err := newRevisions(c, hubKey)
	if err != nil {
		return nil, err
	}
	s := &HubTables{tableSource: source, log: log}
	ch, err := cache.New(cfg, cache.Options{
		Scheme: c.Scheme(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Cluster{}:  {Transform: new(valueSharer).shareValues},
			&enginev1.Revision{}: {Transform: stripRevision},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer: func(api toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := toolscache.NewSharedIndexInformer(source.ListerWatcherFor(example, api), example, resync, indexers)
			if _, ok := example.(*v1alpha1.Bundle); ok {
				s.bundleInformer.Store(&informer)
			}
			return informer
		},
	})
	if err != nil {
		return nil, fmt.Errorf("state: cache of the hub's API: %w", err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("state: dynamic client of the hub's API: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("state: discovery client of the hub's API: %w", err)
	}
	s.Client, s.cache, s.Revisions = c, ch, revisions
	s.Clusters, s.Bundles, s.Rows, s.Templates = newClusters(), newBundles(), newRows(c), newTemplates(dyn, disco, log)
	s.Drifted = newDriftedRows(s.Rows)
	s.Views, s.Sets = newViews(s.Clusters, converter), newSets(s.Clusters)
	s.Settings = newSettings(s.Views)
	s.Namespaces, s.Policies, s.Placements, s.Decisions = newNamespaces(), newPolicies(), newPlacements(), newDecisions()
	s.Scores, s.Hub, s.Customizations, s.Strategies = newScores(), &HubStateTable{}, newCustomizations(), newStrategies()
	s.Repositories, s.Sources = newSourceTables()
	s.SourceSets = newSourceSetTable()
	s.Notifications = newNotificationTable()
	return s, nil
}

// Run feeds the tables until ctx ends. ready is closed once every typed table has its first
// list; templates sync kind by kind; their table reports it.
func (s *HubTables) Run(ctx context.Context, ready chan<- struct{}) error {
	var synced []toolscache.InformerSynced
	for _, f := range s.listFeeds() {
		inf, err := s.cache.GetInformer(ctx, f.kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("state: watch %T: %w", f.kind, err)
		}
		table := wrapEventTable(fmt.Sprintf("%T", f.kind), f.table, s.log)
		reg, err := inf.AddEventHandler(table.eventHandler(ctx))
		if err != nil {
			return fmt.Errorf("state: watch %T: %w", f.kind, err)
		}
		synced = append(synced, table.syncedAfter(reg.HasSynced))
	}
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			close(ready)
		}
	}()
	go s.Templates.watchKinds(ctx)
	return s.cache.Start(ctx)
}

// listFeeds returns the kinds with their tables.
func (s *HubTables) listFeeds() []tableFeed {
	return []tableFeed{
		{&v1alpha1.Cluster{}, s.Clusters},
		{&v1alpha1.Bundle{}, s.Bundles},
		{&v1alpha1.ClusterBundle{}, s.Bundles},
		{&enginev1.TargetSlice{}, s.Rows},
		{&enginev1.Revision{}, s.Revisions},
		{&enginev1.HubState{}, s.Hub},
		{&enginev1.APISet{}, s.Views},
		{&v1alpha1.HubSettings{}, s.Settings},
		{&corev1.Namespace{}, s.Namespaces},
		{&v1alpha1.PropagationPolicy{}, s.Policies},
		{&v1alpha1.ClusterPropagationPolicy{}, s.Policies},
		{&v1alpha1.OverridePolicy{}, s.Policies},
		{&v1alpha1.ClusterOverridePolicy{}, s.Policies},
		{&v1alpha1.ResourceInterpreter{}, s.Policies},
		{&karmada.ResourceInterpreterCustomization{}, s.Customizations},
		{&v1alpha1.Placement{}, s.Placements},
		{&v1alpha1.ClusterPlacement{}, s.Placements},
		{&v1alpha1.PlacementDecision{}, s.Decisions},
		{&v1alpha1.ClusterPlacementDecision{}, s.Decisions},
		{&v1alpha1.RolloutStrategy{}, s.Strategies},
		{&v1alpha1.ClusterRolloutStrategy{}, s.Strategies},
		{&v1alpha1.ClusterScore{}, s.Scores},
		{&v1alpha1.ClusterSet{}, s.Sets},
		{&v1alpha1.ClusterSetBinding{}, s.Sets},
		{&v1alpha1.Repository{}, s.Repositories},
		{&v1alpha1.Source{}, s.Sources},
		{&v1alpha1.SourceSet{}, s.SourceSets},
		{&v1alpha1.Notification{}, s.Notifications},
		{&apiextensionsv1.CustomResourceDefinition{}, s.Templates},
		{&apiextensionsv1.CustomResourceDefinition{}, s.Views},
	}
}

// FeedObject passes an object to the tables of its kind as a watch does: after a write, or where it is gone after its deletion. Tests
// make the tables of a hub by it.
func (s *HubTables) FeedObject(obj client.Object, isGone bool) {
	for _, f := range s.listFeeds() {
		switch {
		case reflect.TypeOf(f.kind) != reflect.TypeOf(obj):
		case isGone:
			f.table.removeObject(obj)
		default:
			f.table.put(obj)
		}
	}
}

// tableFeed joins a kind to the table that holds it.
type tableFeed struct {
	kind  client.Object
	table eventTable
}

// eventTable takes a kind's objects from the watch.
type eventTable interface {
	put(obj client.Object)
	removeObject(obj client.Object)
}
