// Package state holds what the hub knows in memory: tables with indexes, fed by
// watches of the hub's own API server, or of its store where that costs less, and the
// fenced writers of engine objects.
//
// Contract: readers never block on the network (Revisions.Content may, once per
// revision) and get shared values that they must not change. Every table tells
// its subscribers what changed; subscribers are called one after the other from
// the watch, so they may only note the change, for example in a queue. Writers
// put what the API server answered into the table at once, so that who wrote
// reads its own write; an event that is older than what the table holds is
// dropped. A table that is not synced says so, and its absences mean nothing.
package state

import (
	"context"
	"fmt"
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

// State is all tables. Its fields are set by New and do not change.
type State struct {
	Client     client.Client
	Clusters   *Clusters
	Views      *Views
	Settings   *Settings
	Bundles    *Bundles
	Rows       *Rows
	Revisions  *Revisions
	Templates  *Templates
	Namespaces *Namespaces
	Policies   *Policies
	// Customizations are translated to interpreters, and nobody else looks at them.
	Customizations *Customizations
	Placements     *Placements
	Decisions      *Decisions
	Scores         *Scores
	Sets           *Sets
	Hub            *Hub

	cache  cache.Cache
	source Source
	// bundles feeds the table of Bundles; nil before Run.
	bundles atomic.Pointer[toolscache.SharedIndexInformer]
}

// Scheme of everything that the hub's typed clients speak.
func Scheme() *runtime.Scheme {
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

// Source of tables that are not fed by the API server.
type Source interface {
	// Source gives what lists and watches the objects of the example's kind for a table,
	// where that is another than the API server, which is api.
	Source(example runtime.Object, api toolscache.ListerWatcher) toolscache.ListerWatcher
	// AskProgress lets the watches of Bundles that it gave hear how far the store is;
	// false where they do not.
	AskProgress(ctx context.Context) bool
}

// New makes the tables over the API server that cfg reaches, and of kinds that come from
// elsewhere over their source; c writes, and reads what no table has, and hubKey keys the
// names of revisions. Nothing is read before Run.
func New(c client.Client, cfg *rest.Config, source Source, hubKey []byte) (*State, error) {
	revisions, err := newRevisions(c, hubKey)
	if err != nil {
		return nil, err
	}
	s := &State{source: source}
	ch, err := cache.New(cfg, cache.Options{
		Scheme: c.Scheme(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Cluster{}:  {Transform: new(slimmer).slim},
			&enginev1.Revision{}: {Transform: stripRevision},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer: func(api toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := toolscache.NewSharedIndexInformer(source.Source(example, api), example, resync, indexers)
			if _, ok := example.(*v1alpha1.Bundle); ok {
				s.bundles.Store(&informer)
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
	s.Clusters, s.Bundles, s.Rows, s.Templates = newClusters(), newBundles(), newRows(c), newTemplates(dyn, disco)
	s.Views, s.Sets = newViews(s.Clusters), newSets(s.Clusters)
	s.Settings = newSettings(s.Views)
	s.Namespaces, s.Policies, s.Placements, s.Decisions = newNamespaces(), newPolicies(), newPlacements(), newDecisions()
	s.Scores, s.Hub, s.Customizations = newScores(), &Hub{}, newCustomizations()
	return s, nil
}

// Run feeds the tables until ctx ends. ready is closed once every typed table has
// its first list; templates sync kind by kind and say so themselves.
func (s *State) Run(ctx context.Context, ready chan<- struct{}) error {
	var synced []toolscache.InformerSynced
	for _, f := range []feed{
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
		{&v1alpha1.ClusterScore{}, s.Scores},
		{&v1alpha1.ClusterSet{}, s.Sets},
		{&v1alpha1.ClusterSetBinding{}, s.Sets},
		{&apiextensionsv1.CustomResourceDefinition{}, s.Templates},
	} {
		inf, err := s.cache.GetInformer(ctx, f.kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("state: watch %T: %w", f.kind, err)
		}
		reg, err := inf.AddEventHandler(handler(f.table))
		if err != nil {
			return fmt.Errorf("state: watch %T: %w", f.kind, err)
		}
		synced = append(synced, reg.HasSynced)
	}
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
			close(ready)
		}
	}()
	go s.Templates.run(ctx)
	return s.cache.Start(ctx)
}

// feed joins a kind to the table that holds it.
type feed struct {
	kind  client.Object
	table table
}

// table takes a kind's objects from the watch.
type table interface {
	put(obj client.Object)
	drop(obj client.Object)
}

func handler(t table) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.put(o.(client.Object)) },
		UpdateFunc: func(_, o any) { t.put(o.(client.Object)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if obj, ok := o.(client.Object); ok {
				t.drop(obj)
			}
		},
	}
}
