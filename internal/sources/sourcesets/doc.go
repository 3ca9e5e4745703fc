// Package sourcesets makes the Sources of SourceSets.
//
// Contract: one Reconciler per hub writes, while its hub leads. A check that a Repository has for its Sources also reads the listings
// of generators. Sources are written by the rights of a ServiceAccount, so that admission treats each as one that
// this account wrote. Package generate decides what is made, changed and deleted. Content that is not read, empty or refused deletes nothing.
// Methods are safe for concurrent use. A Runner is called once, when the tables are synced.
package sourcesets

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/sources"
	"atoll.dev/atoll/internal/sources/generate"
	"atoll.dev/atoll/internal/state"
)

const (
	// workers reconcile SourceSets at the same time.
	workers = 2
	// changeDebounce joins the changes of many Sources to one reconcile.
	changeDebounce, maxChangeDebounce = 300 * time.Millisecond, 2 * time.Second
	// firstRetry is the wait after Sources were refused; it doubles up to maxRetry. Rights are not watched.
	firstRetry, maxRetry = 30 * time.Second, 5 * time.Minute
	// setBackPause is the time between two corrections of Sources that others change.
	setBackPause = time.Minute
)

// Clusters are the members on the hub.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	// List lists all Clusters by name.
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// ClusterSets are the sets of Clusters that namespaces may place on.
type ClusterSets interface {
	// AllowedSets lists the sets that a namespace may place on.
	AllowedSets(namespace string) []string
	// OfCluster lists the sets that a Cluster is in.
	OfCluster(name string) []string
	// Subscribe subscribes to namespaces that may place on other sets than before; "" stands for several.
	Subscribe(fn func(namespace string))
	// SubscribeSets subscribes to sets that changed, or whose number of Clusters did.
	SubscribeSets(fn func(set string))
}

// MadeSources are the Sources on the hub.
type MadeSources interface {
	Get(key types.NamespacedName) (*v1alpha1.Source, bool)
	InNamespace(namespace string) []*v1alpha1.Source
	// Put stores what the API returned of a write.
	Put(s *v1alpha1.Source)
	Subscribe(fn func(key types.NamespacedName))
	// SubscribeToEveryChange subscribes to changes of metadata and status, too.
	SubscribeToEveryChange(fn func(key types.NamespacedName))
}

// Config of a Reconciler, and of the Sources that it makes.
type Config struct {
	sources.Config
	Sets        *state.SourceSetTable
	Made        MadeSources
	Clusters    Clusters
	ClusterSets ClusterSets
}

// NewConfig returns the Config over the hub's tables. cfg reaches the hub's API, and allowed are the networks that
// Repositories may name although they are refused otherwise.
func NewConfig(st *state.HubTables, events sources.Events, cfg *rest.Config, allowed []string, log *slog.Logger) (Config, error) {
	c, err := sources.NewConfig(st, events, cfg, allowed, log)
	return Config{Config: c, Sets: st.SourceSets, Made: st.Sources, Clusters: st.Clusters, ClusterSets: st.Sets}, err
}

// Reconciler reconciles SourceSets.
type Reconciler struct {
	Config
	// checkRepository has a Repository checked soon.
	checkRepository func(types.NamespacedName)
	loop            *reconcile.Loop[types.NamespacedName]

	mu sync.Mutex
	// listings of the generators of a SourceSet, by their paths.
	listings map[types.NamespacedName]map[string]*listing
	// failures are Repositories whose last checks failed.
	failures map[types.NamespacedName]repositoryFailure
	// owners are the SourceSets that give the name of a Source, and owned the names that a SourceSet gives.
	owners map[types.NamespacedName]map[types.NamespacedName]bool
	owned  map[types.NamespacedName][]string
	// metadata is what was seen last of the Sources in owners.
	metadata map[types.NamespacedName]sourceMetadata
	// clusterLabels are the labels of Clusters as they were seen last.
	clusterLabels map[string]map[string]string
	// tries count the reconciles in a row that left a Source unapplied, and setBack is when Sources were corrected last.
	tries   map[types.NamespacedName]int
	setBack map[types.NamespacedName]time.Time
}

// sourceMetadata is the labels and annotations of a Source, whose changes are none of its generation.
type sourceMetadata struct{ labels, annotations map[string]string }

// NewRunner returns what runs the Sources and the SourceSets of a hub until its context ends.
func NewRunner(cfg Config, placed sources.Placed) func(context.Context) error {
	r := newReconciler(cfg)
	cfg.Listings = r
	reader := sources.New(cfg.Config, placed)
	r.checkRepository = reader.CheckRepository
	return func(ctx context.Context) error {
		var group sync.WaitGroup
		group.Go(func() { r.loop.Run(ctx, r.enqueueAll) })
		err := reader.Run(ctx)
		group.Wait()
		return err
	}
}

// newReconciler makes a Reconciler and subscribes it to the tables.
func newReconciler(cfg Config) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Reconciler{
		Config: cfg, checkRepository: func(types.NamespacedName) {}, listings: map[types.NamespacedName]map[string]*listing{}, failures: map[types.NamespacedName]repositoryFailure{},
		owners: map[types.NamespacedName]map[types.NamespacedName]bool{}, owned: map[types.NamespacedName][]string{}, clusterLabels: map[string]map[string]string{},
		metadata: map[types.NamespacedName]sourceMetadata{}, tries: map[types.NamespacedName]int{}, setBack: map[types.NamespacedName]time.Time{},
	}
	r.loop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "source-sets", Workers: workers, Debounce: changeDebounce, MaxDebounce: maxChangeDebounce,
		Backoff:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, 5*time.Minute),
		Reconcile: r.reconcileSet,
		Failed: func(key types.NamespacedName, err error) {
			r.Log.Warn("a SourceSet could not be reconciled, trying again", "namespace", key.Namespace, "name", key.Name, "err", err)
		},
	})
	cfg.Sets.Subscribe(r.loop.EnqueueAtOnce)
	cfg.Made.Subscribe(r.sourceChanged)
	cfg.Made.SubscribeToEveryChange(func(key types.NamespacedName) {
		if r.noteMetadata(key) {
			r.sourceChanged(key)
		}
	})
	cfg.Repositories.Subscribe(r.repositoryChanged)
	cfg.Clusters.Subscribe(r.clusterChanged)
	cfg.ClusterSets.Subscribe(func(namespace string) { r.enqueueUsersOfClusters(namespace) })
	cfg.ClusterSets.SubscribeSets(func(string) { r.enqueueUsersOfClusters("") })
	return r
}

// enqueueAll enqueues each SourceSet. One that has considered its spec is reconciled within a part of the interval of Repositories.
func (r *Reconciler) enqueueAll() {
	for _, c := range r.Clusters.List() {
		r.noteLabels(c.Name) // so that the first event of a Cluster is none
	}
	for _, set := range r.Sets.InNamespace("") {
		key := client.ObjectKeyFromObject(set)
		if isSettled(set) {
			r.loop.EnqueueRecheck(key, rand.N(v1alpha1.DefaultRepositoryInterval/2))
		} else {
			r.loop.EnqueueNow(key)
		}
	}
}

// isSettled reports whether a SourceSet has considered its spec.
func isSettled(set *v1alpha1.SourceSet) bool { return set.Status.ObservedGeneration == set.Generation }

// sourceChanged reconciles the SourceSet that a Source is of, and those that give its name.
func (r *Reconciler) sourceChanged(key types.NamespacedName) {
	r.mu.Lock()
	sets := slices.Collect(maps.Keys(r.owners[key]))
	r.mu.Unlock()
	if s, ok := r.Made.Get(key); ok {
		if name := s.Labels[v1alpha1.LabelSourceSet]; name != "" {
			sets = append(sets, types.NamespacedName{Namespace: key.Namespace, Name: name})
		}
	}
	for _, set := range sets {
		r.loop.EnqueueDebounced(set)
	}
}

// noteMetadata notes the labels and annotations of a Source whose name a SourceSet gives. It reports whether they are others than before.
func (r *Reconciler) noteMetadata(key types.NamespacedName) (changed bool) {
	s, exists := r.Made.Get(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !exists || len(r.owners[key]) == 0 {
		return false // the table notifies of a deletion by itself
	}
	before, had := r.metadata[key]
	r.metadata[key] = sourceMetadata{s.Labels, s.Annotations}
	return had && !(maps.Equal(before.labels, s.Labels) && maps.Equal(before.annotations, s.Annotations))
}

// repositoryChanged reconciles the SourceSets that read a Repository, and drops the failure of one that is gone.
func (r *Reconciler) repositoryChanged(key types.NamespacedName) {
	r.mu.Lock()
	if _, exists := r.Repositories.Get(key); !exists {
		delete(r.failures, key)
	}
	r.mu.Unlock()
	r.enqueueReaders(key)
}

// enqueueReaders reconciles the SourceSets that read a Repository.
func (r *Reconciler) enqueueReaders(repository types.NamespacedName) {
	for _, set := range r.readersOf(repository) {
		r.loop.EnqueueAtOnce(client.ObjectKeyFromObject(set))
	}
}

// readersOf lists the SourceSets with a generator that reads a Repository.
func (r *Reconciler) readersOf(repository types.NamespacedName) []*v1alpha1.SourceSet {
	return slices.DeleteFunc(r.Sets.InNamespace(repository.Namespace), func(set *v1alpha1.SourceSet) bool {
		return !slices.ContainsFunc(generate.ListLeaves(&set.Spec), func(l generate.Leaf) bool {
			reading := l.Reading()
			return reading != nil && reading.Repository == repository.Name
		})
	})
}

// clusterChanged reconciles the SourceSets with a clusters generator when the labels of a Cluster changed, or the Cluster came or went.
func (r *Reconciler) clusterChanged(name string) {
	if r.noteLabels(name) {
		r.enqueueUsersOfClusters("")
	}
}

// noteLabels notes the labels of an accepted Cluster, and reports whether they are others than before.
func (r *Reconciler) noteLabels(name string) (changed bool) {
	c, exists := r.Clusters.Get(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, had := r.clusterLabels[name]
	if exists && c.Spec.Accepted {
		r.clusterLabels[name] = c.Labels
	} else {
		delete(r.clusterLabels, name)
	}
	now, has := r.clusterLabels[name]
	return had != has || !maps.Equal(before, now)
}

// enqueueUsersOfClusters reconciles the SourceSets of a namespace with a clusters generator; of all namespaces for "".
func (r *Reconciler) enqueueUsersOfClusters(namespace string) {
	for _, set := range r.Sets.InNamespace(namespace) {
		if slices.ContainsFunc(generate.ListLeaves(&set.Spec), func(l generate.Leaf) bool { return l.UsesClusters() }) {
			r.loop.EnqueueDebounced(client.ObjectKeyFromObject(set))
		}
	}
}

// forgetSet drops what is noted of a SourceSet that is gone.
func (r *Reconciler) forgetSet(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.listings, key)
	r.setOwnedLocked(key, nil)
	delete(r.tries, key)
	delete(r.setBack, key)
}

// setOwnedLocked notes the names of the Sources of a SourceSet. The lock is held.
func (r *Reconciler) setOwnedLocked(set types.NamespacedName, names []string) {
	for _, name := range r.owned[set] {
		source := types.NamespacedName{Namespace: set.Namespace, Name: name}
		if delete(r.owners[source], set); len(r.owners[source]) == 0 {
			delete(r.owners, source)
			delete(r.metadata, source)
		}
	}
	if r.owned[set] = names; len(names) == 0 {
		delete(r.owned, set)
	}
	for _, name := range names {
		source := types.NamespacedName{Namespace: set.Namespace, Name: name}
		if r.owners[source] == nil {
			r.owners[source] = map[types.NamespacedName]bool{}
		}
		r.owners[source][set] = true
	}
}

// accountOf returns the ServiceAccount by whose rights a SourceSet writes Sources.
func accountOf(set *v1alpha1.SourceSet) string {
	if set.Spec.ServiceAccountName != "" {
		return set.Spec.ServiceAccountName
	}
	return v1alpha1.DefaultSourceAccount
}

// fieldManagerOf returns the field manager of a SourceSet, whose name has 63 characters at most.
func fieldManagerOf(set *v1alpha1.SourceSet) string {
	return "atoll-source-set:" + set.Name
}
