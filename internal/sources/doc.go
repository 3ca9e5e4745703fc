// Package sources applies the objects of repositories as templates on the hub.
//
// Contract: one Reconciler per hub writes, while its hub leads. One check of a Repository reads the content of all its
// Sources. A Source writes by the rights of its ServiceAccount, under a field manager of its own. Nothing that is not
// read removes anything: an object is removed only when a later commit drops it while the rest of the content is
// applied. Package changes decides it, from values that are read again just before each removal. A Repository whose last check failed or was slow is checked by workers of its own. Those of one namespace
// have a part of the workers. Run is
// called once, when the tables are synced.
package sources

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/sources/commitreport"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/state"
)

// Fetcher reads repositories.
type Fetcher interface {
	Fetch(ctx context.Context, r fetch.Request) (*fetch.Answer, error)
}

// Placed finds the Bundles of objects.
type Placed interface {
	BundlesHolding(key atoll.ItemKey) []policymatch.BundleID
}

// Events records Events. It must not block.
type Events interface {
	RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string)
}

// Listings read Repositories for others than Sources, in the checks of the Repositories. Its methods are called by several checks at the
// same time, and by one at a time for a Repository.
type Listings interface {
	// IsAwaited reports whether a listing of the Repository is not read yet, so that the Repository is checked at once after a start.
	IsAwaited(repository types.NamespacedName) bool
	// ListWants returns what of the Repository is listed, each with an ID that no Source can have as its name.
	ListWants(c ListingCheck) []fetch.Want
	// TakeListings takes what was listed, in the order of ListWants. It returns true where the next check must come soon.
	TakeListings(ctx context.Context, c ListingCheck, contents []fetch.Content) (retry bool)
	// FailListings takes the reason that the Repository cannot be read. failures counts the checks in a row that failed.
	FailListings(repository types.NamespacedName, why fetch.Failure, failures int)
}

// ListingCheck is a check of a Repository for Listings.
type ListingCheck struct {
	Repository *v1alpha1.Repository
	// TrustedKeys is a digest of what must be signed and by which keys.
	TrustedKeys string
	// Descends reports whether a revision comes after another one. The error is a *Failure, or one of the hub.
	Descends func(ctx context.Context, old, now string) (bool, error)
}

// Config of a Reconciler. All but Listings, AllowedNetworks and Log must be set.
type Config struct {
	Repositories *state.RepositoryTable
	Sources      *state.SourceTable
	Bundles      *state.BundleTable
	// Objects have the ConfigMaps and Secrets with values, and the objects that Sources applied. Their changes are followed.
	Objects Objects
	// Client writes statuses, and reads ServiceAccounts and the Secrets of Repositories.
	Client client.Client
	// Templates reads and writes objects by the rights of the account that WithAccount put into the context.
	Templates dynamic.Interface
	Fetcher   Fetcher
	Events    Events
	// Listings; nil: none.
	Listings Listings
	// AllowedNetworks are networks in CIDR notation that Repositories may name although they are refused otherwise; nil: none.
	AllowedNetworks []string
	// Log; nil: slog's default.
	Log *slog.Logger
}

// NewConfig returns the Config over the hub's tables. cfg reaches the hub's API, and allowed are the networks that
// Repositories may name although they are refused otherwise.
func NewConfig(st *state.HubTables, events Events, cfg *rest.Config, allowed []string, log *slog.Logger) (Config, error) {
	templates, err := NewTemplateClient(cfg)
	return Config{
		Repositories: st.Repositories, Sources: st.Sources, Bundles: st.Bundles, Objects: st.Templates, Client: st.Client, Templates: templates,
		Fetcher: &fetch.Fetcher{AllowedNetworks: allowed}, AllowedNetworks: allowed, Events: events, Log: log,
	}, err
}

const (
	// healthyWorkers and failingWorkers are how many children run at the same time.
	healthyWorkers, failingWorkers = 3, 1
	// slowCheck is the time from which on a check is one for the workers of those that fail.
	slowCheck = 20 * time.Second
	// namespaceChecks is how many Repositories of one namespace are checked at the same time.
	namespaceChecks = 2
	// maxFetches is how many children one check starts for content. The next check reads the rest.
	maxFetches = 4
	// firstRetry is the wait after a check that failed; it doubles up to the interval.
	firstRetry = 30 * time.Second
	// recentRequest is how long before the start a request of a git server is checked at once. It is longer than a takeover.
	recentRequest = 5 * time.Minute
	// changeDebounce joins the changes of many Sources to one check.
	changeDebounce, maxChangeDebounce = 300 * time.Millisecond, 2 * time.Second
	// statusDebounce joins changes of Bundles to one status.
	statusDebounce, maxStatusDebounce = 500 * time.Millisecond, 5 * time.Second
)

// Reconciler reconciles Repositories and Sources. Make it with New.
type Reconciler struct {
	Config
	placed Placed
	// healthy and failing check Repositories, which are in one of them at a time. Slow ones are in failing, too.
	healthy, failing *reconcile.Loop[types.NamespacedName]
	readiness        *reconcile.Loop[types.NamespacedName]
	bundles          *bundleSubscriptions
	references       *referenceIndex
	drift            *driftWatch
	reports          *commitreport.Reporter

	mu       sync.Mutex
	checking map[types.NamespacedName]bool
	// slow are Repositories whose last check was slow.
	slow map[types.NamespacedName]bool
	// failures are checks in a row that failed, and tries those that failed or left content unapplied.
	failures, tries map[types.NamespacedName]int
	writing         map[types.NamespacedName]*sync.Mutex
}

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config, placed Placed) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Reconciler{
		Config: cfg, placed: placed, bundles: newBundleSubscriptions(), references: newReferenceIndex(),
		checking: map[types.NamespacedName]bool{}, slow: map[types.NamespacedName]bool{}, failures: map[types.NamespacedName]int{}, tries: map[types.NamespacedName]int{}, writing: map[types.NamespacedName]*sync.Mutex{},
	}
	lane := func(name string, workers int) *reconcile.Loop[types.NamespacedName] {
		return reconcile.New(reconcile.Options[types.NamespacedName]{
			Name: name, Workers: workers, Debounce: changeDebounce, MaxDebounce: maxChangeDebounce, Backoff: newBackoff(),
			Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				return 0, r.checkRepository(ctx, key)
			},
			Failed: r.logFailure("a Repository could not be checked, trying again"),
		})
	}
	r.healthy, r.failing = lane("repositories", healthyWorkers), lane("failing-repositories", failingWorkers)
	r.readiness = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "sources", Debounce: statusDebounce, MaxDebounce: maxStatusDebounce, Backoff: newBackoff(),
		Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			s, ok := r.Sources.Get(key)
			if !ok {
				return 0, nil
			}
			return 0, r.updateSource(ctx, s, func(*v1alpha1.Source) {})
		},
		Failed: r.logFailure("the status of a Source could not be written, trying again"),
	})
	r.drift = r.newDriftWatch()
	r.reports = commitreport.New(commitreport.Config{
		Sources: cfg.Sources, Repositories: cfg.Repositories, Secrets: cfg.Client, AllowedNetworks: cfg.AllowedNetworks, Update: r.updateSource, Log: cfg.Log,
	})
	cfg.Repositories.Subscribe(r.repositoryChanged)
	cfg.Sources.Subscribe(r.sourceChanged)
	cfg.Bundles.Subscribe(r.bundleChanged)
	cfg.Objects.Subscribe(r.valuesChanged)
	cfg.Objects.Subscribe(r.objectChanged)
	for _, s := range cfg.Sources.InNamespace("") {
		r.indexReferences(client.ObjectKeyFromObject(s))
	}
	return r
}

// newBackoff returns the backoff of keys that failed by an error of the hub.
func newBackoff() workqueue.TypedRateLimiter[types.NamespacedName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, 5*time.Minute)
}

func (r *Reconciler) logFailure(what string) func(types.NamespacedName, error) {
	return func(key types.NamespacedName, err error) {
		r.Log.Warn(what, "namespace", key.Namespace, "name", key.Name, "err", err)
	}
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	var group sync.WaitGroup
	r.healthy.AcceptKeys()
	r.failing.AcceptKeys()
	group.Go(func() { r.healthy.Run(ctx, r.enqueueAll) })
	group.Go(func() { r.failing.Run(ctx, nil) })
	group.Go(func() { r.drift.loop.Run(ctx, r.followApplied) })
	group.Go(func() { r.reports.Run(ctx) })
	r.readiness.Run(ctx, func() {
		for _, s := range r.Sources.InNamespace("") {
			r.readiness.EnqueueNow(client.ObjectKeyFromObject(s))
		}
	})
	group.Wait()
	return nil
}

// isRequestRecent reports whether the hub that led before may have ended between a request of a git server and its check.
func isRequestRecent(repo *v1alpha1.Repository) bool {
	at := repo.Status.WebhookTime
	return at != nil && time.Since(at.Time) < recentRequest
}

// enqueueAll enqueues each Repository, and the Repositories that Sources name in vain. A Repository that nothing
// waits for is checked within a part of its interval.
func (r *Reconciler) enqueueAll() {
	waits := map[types.NamespacedName]bool{}
	for _, s := range r.Sources.InNamespace("") {
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Repository}
		waits[key] = waits[key] || !isSettled(s) || r.hasOtherInputs(s) || meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered) == nil
	}
	for _, repo := range r.Repositories.InNamespace("") {
		key := client.ObjectKeyFromObject(repo)
		if waits[key] || r.awaitsListing(key) || repo.Status.ObservedGeneration != repo.Generation || isRequestRecent(repo) {
			r.healthy.EnqueueNow(key)
		} else {
			r.healthy.EnqueueRecheck(key, rand.N(intervalOf(repo)/2))
		}
		delete(waits, key)
	}
	for key := range waits {
		r.healthy.EnqueueNow(key)
	}
}

// intervalOf returns the time between two checks.
func intervalOf(repo *v1alpha1.Repository) time.Duration {
	if repo.Spec.Interval == nil {
		return v1alpha1.DefaultRepositoryInterval
	}
	return repo.Spec.Interval.Duration
}

// repositoryChanged checks a Repository soon, and reports its Sources as it states now.
func (r *Reconciler) repositoryChanged(key types.NamespacedName) {
	r.enqueueChange(key)
	for _, s := range r.sourcesOf(key) {
		r.reports.SourceChanged(client.ObjectKeyFromObject(s))
	}
}

// CheckRepository checks a Repository soon.
func (r *Reconciler) CheckRepository(key types.NamespacedName) { r.enqueueChange(key) }

// enqueueChange checks a Repository soon.
func (r *Reconciler) enqueueChange(key types.NamespacedName) {
	r.laneOf(key).EnqueueAtOnce(key)
}

// sourceChanged checks the Repository of a Source whose spec changed. The Repository of a deleted Source need not be
// checked.
func (r *Reconciler) sourceChanged(key types.NamespacedName) {
	r.indexReferences(key)
	s, ok := r.Sources.Get(key)
	if !ok {
		r.bundles.dropSource(key)
		r.drift.dropSource(key)
		r.reports.SourceChanged(key)
		r.mu.Lock()
		delete(r.writing, key)
		r.mu.Unlock()
		return
	}
	r.enqueueChange(types.NamespacedName{Namespace: key.Namespace, Name: s.Spec.Repository})
}

// laneOf returns the loop that checks a Repository.
func (r *Reconciler) laneOf(key types.NamespacedName) *reconcile.Loop[types.NamespacedName] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures[key] > 0 || r.slow[key] {
		return r.failing
	}
	return r.healthy
}

// beginCheck reports whether no other worker checks the Repository now, and its namespace has a worker left.
func (r *Reconciler) beginCheck(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	inNamespace := 0
	for other := range r.checking {
		if other.Namespace == key.Namespace {
			inNamespace++
		}
	}
	if r.checking[key] || inNamespace >= namespaceChecks {
		return false
	}
	r.checking[key] = true
	return true
}

// isChecking reports whether a worker checks the Repository now.
func (r *Reconciler) isChecking(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checking[key]
}

func (r *Reconciler) endCheck(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.checking, key)
}

// noteDuration notes how long a check took, which decides the workers of the next one.
func (r *Reconciler) noteDuration(key types.NamespacedName, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.slow, key)
	if took >= slowCheck {
		r.slow[key] = true
	}
}

// countFailure counts the checks that failed in a row; a check that succeeded ends the row.
func (r *Reconciler) countFailure(key types.NamespacedName, failed bool) int {
	return r.countRow(r.failures, key, failed)
}

// countTry counts the checks in a row that left something undone.
func (r *Reconciler) countTry(key types.NamespacedName, undone bool) int {
	return r.countRow(r.tries, key, undone)
}

// endRows drops what was counted of a Repository that is not checked.
func (r *Reconciler) endRows(key types.NamespacedName) {
	r.countFailure(key, false)
	r.countTry(key, false)
	r.noteDuration(key, 0)
}

func (r *Reconciler) countRow(rows map[types.NamespacedName]int, key types.NamespacedName, goesOn bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !goesOn {
		delete(rows, key)
		return 0
	}
	rows[key]++
	return rows[key]
}
