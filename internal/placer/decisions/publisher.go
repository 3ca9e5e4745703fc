package decisions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Placements is the table of Placements.
type Placements interface {
	Get(key types.NamespacedName) (state.Placement, bool)
	List() []state.Placement
	Subscribe(fn func(key types.NamespacedName))
}

// Decisions is the table of PlacementDecisions.
type Decisions interface {
	OfPlacement(key types.NamespacedName) []state.Decision
	Put(obj client.Object)
	Remove(obj client.Object)
	Subscribe(fn func(placement types.NamespacedName))
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Hub reports whether the hub holds.
type Hub interface {
	HoldReason() (reason string, holding bool)
	Subscribe(fn func())
}

// Views makes placement's view of a Cluster, and reports changes of the view that are no changes
// of the Cluster.
type Views interface {
	ViewOf(c *v1alpha1.Cluster) schedule.Cluster
	Subscribe(fn func(name string))
}

// Sets returns the ClusterSets to which a namespace is bound.
type Sets interface {
	AllowedSets(namespace string) []string
	// Subscribe to namespaces whose sets changed; "" stands for all namespaces without a
	// binding.
	Subscribe(fn func(namespace string))
}

// Config of a Publisher. All but Sets, SetInterest and Log must be set.
type Config struct {
	Placements Placements
	Decisions  Decisions
	Clusters   Clusters
	Hub        Hub
	Views      Views
	Client     client.Client
	// Sets that limit namespaces; nil: no namespace is limited.
	Sets Sets
	// SetInterest sets the inputs of scores in a decision for the namespace; nil: none.
	SetInterest func(in *schedule.Input, namespace string)
	// Log; nil: slog's default.
	Log *slog.Logger
}

// clusterDebounce is how long changes of clusters are collected before a Placement is decided
// again, because a decision looks at the whole fleet.
const clusterDebounce = time.Second

// fieldOwner is the field manager of PlacementDecisions.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// errConflict means that another writer changed the object; its event enqueues the Placement
// again.
var errConflict = errors.New("it changed since it was read")

// DecisionPublisher publishes what Placements choose. Make it with New.
type DecisionPublisher struct {
	Config
	// explainAll makes decisions give a reason for each cluster.
	explainAll bool

	loop *reconcile.Loop[types.NamespacedName]

	mu            sync.Mutex
	knownClusters map[string]schedule.Cluster // nil before Run
	filters       map[types.NamespacedName]compiledFilter
	// lastDecisions by Placement.
	lastDecisions map[types.NamespacedName]lastDecision
}

// compiledFilter is the filter of a Placement, with what it was compiled from.
type compiledFilter struct {
	uid        types.UID
	generation int64
	boundSets  []string
	rebalance  time.Time
	filter     *schedule.CompiledPlacement
}

// New makes a Publisher and subscribes it to the tables.
func New(cfg Config) *DecisionPublisher {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &DecisionPublisher{Config: cfg, filters: map[types.NamespacedName]compiledFilter{}, lastDecisions: map[types.NamespacedName]lastDecision{}}
	p.loop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "decisions", Reconcile: p.reconcilePlacement,
		Failed: func(key types.NamespacedName, err error) {
			if !errors.Is(err, errConflict) {
				p.Log.Warn("what a placement chose could not be published, trying again", "namespace", key.Namespace, "placement", key.Name, "err", err)
			}
		},
	})
	cfg.Placements.Subscribe(p.loop.EnqueueNow)
	cfg.Decisions.Subscribe(func(key types.NamespacedName) { p.loop.EnqueueAfter(key, clusterDebounce) })
	cfg.Clusters.Subscribe(p.clusterChanged)
	cfg.Views.Subscribe(p.clusterChanged)
	cfg.Hub.Subscribe(p.enqueueAllPlacements)
	if cfg.Sets != nil {
		cfg.Sets.Subscribe(p.enqueuePlacementsIn)
	}
	return p
}

// enqueuePlacementsIn enqueues the Placements of a namespace; "": of all namespaces.
func (p *DecisionPublisher) enqueuePlacementsIn(namespace string) {
	for _, pl := range p.Placements.List() {
		if namespace == "" || pl.Meta.Namespace == namespace {
			p.loop.EnqueueNow(pl.Key())
		}
	}
}

// boundSets returns the sets that limit a Placement; nil: none does.
func (p *DecisionPublisher) boundSets(pl state.Placement) []string {
	if p.Sets == nil {
		return nil
	}
	return schedule.AllowedClusterSets(pl.Meta.Namespace, v1alpha1.SourcePropagationPolicy, p.Sets.AllowedSets)
}

// Run publishes until ctx ends.
func (p *DecisionPublisher) Run(ctx context.Context) error {
	p.loop.Run(ctx, func() {
		p.storeKnownClusters()
		p.enqueueAllPlacements()
	})
	return nil
}

// storeKnownClusters records the clusters with which later changes are compared.
func (p *DecisionPublisher) storeKnownClusters() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.knownClusters = map[string]schedule.Cluster{}
	for _, c := range p.Clusters.List() {
		p.knownClusters[c.Name] = p.Views.ViewOf(c)
	}
}

// enqueueAllPlacements rechecks all Placements, behind those that changed.
func (p *DecisionPublisher) enqueueAllPlacements() {
	for _, pl := range p.Placements.List() {
		p.loop.EnqueueRecheck(pl.Key(), 0)
	}
}

// clusterChanged enqueues the Placements that the cluster fits or fitted.
func (p *DecisionPublisher) clusterChanged(name string) {
	c, ok := p.Clusters.Get(name)
	p.mu.Lock()
	if p.knownClusters == nil {
		p.mu.Unlock()
		return
	}
	was, known := p.knownClusters[name]
	is := schedule.Cluster{}
	if delete(p.knownClusters, name); ok {
		is = p.Views.ViewOf(c)
		p.knownClusters[name] = is
	}
	p.mu.Unlock()
	if known == ok && isSameForPlacement(was, is) {
		if !slices.Equal(was.Resources, is.Resources) {
			p.enqueueAffectedByScore(&is)
		}
		return
	}
	for _, pl := range p.Placements.List() {
		if f := p.filterOf(pl); known && fitsCluster(f, was) || ok && fitsCluster(f, is) {
			p.loop.EnqueueAfter(pl.Key(), clusterDebounce)
		}
	}
}

// isSameForPlacement reports whether no placement distinguishes two states of a cluster.
// Resources only matter to scores.
func isSameForPlacement(was, is schedule.Cluster) bool {
	was.Resources, is.Resources = nil, nil
	return reflect.DeepEqual(was, is)
}

func fitsCluster(f *schedule.CompiledPlacement, c schedule.Cluster) bool {
	ok, _, _ := f.CheckCluster(c)
	return ok
}

// filterOf compiles the filter of a Placement once.
func (p *DecisionPublisher) filterOf(pl state.Placement) *schedule.CompiledPlacement {
	bound, rebalance := p.boundSets(pl), atoll.RebalanceRequestedAt(pl.Meta.Annotations)
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.filters[pl.Key()]
	if !ok || c.uid != pl.Meta.UID || c.generation != pl.Meta.Generation || !slices.Equal(c.boundSets, bound) || !c.rebalance.Equal(rebalance) {
		c = compiledFilter{pl.Meta.UID, pl.Meta.Generation, bound, rebalance, schedule.PlacementTerms{Placement: pl.Spec, BoundSets: bound, Rebalance: rebalance, SummedWeights: true}.CompilePlacement()}
		p.filters[pl.Key()] = c
	}
	return c.filter
}

// reconcilePlacement publishes what a Placement chooses, and comes again when time alone changes
// the choice.
func (p *DecisionPublisher) reconcilePlacement(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	at, err := p.publishDecision(ctx, key)
	if err != nil || at.IsZero() {
		return 0, err
	}
	return max(time.Until(at), time.Millisecond), nil
}

// publishDecision publishes what a Placement chooses now. at is when time alone changes it;
// zero: never.
func (p *DecisionPublisher) publishDecision(ctx context.Context, key types.NamespacedName) (at time.Time, err error) {
	pl, ok := p.Placements.Get(key)
	if _, holding := p.Hub.HoldReason(); holding || !ok || pl.Meta.DeletionTimestamp != nil {
		if !ok {
			p.mu.Lock()
			delete(p.filters, key)
			delete(p.lastDecisions, key)
			p.mu.Unlock()
		}
		return time.Time{}, nil
	}
	now := p.Decisions.OfPlacement(key)
	if i := slices.IndexFunc(now, func(d state.Decision) bool { return !hasNoOtherController(d, pl) }); i >= 0 {
		// It belongs to a deleted Placement of that name; the garbage collector removes it.
		return time.Time{}, fmt.Errorf("%s is of another placement: %w", now[i].Meta.Name, errConflict)
	}
	chosen, d := p.chooseClusters(pl, now)
	out := arrangeDecisions(pl, now, chosen)
	out.recordChoiceInDecisions(now, d)
	for _, w := range out.toWrite {
		if err := p.writeDecision(ctx, w); err != nil {
			return time.Time{}, err
		}
	}
	for _, w := range out.toDelete {
		if err := p.deleteDecision(ctx, w); err != nil {
			return time.Time{}, err
		}
	}
	p.storeLastDecision(key, d, chosen)
	return earliestTime(d.EvictAt, d.RecheckAt), p.writeStatus(ctx, pl, len(chosen), d.NoFit)
}

func hasNoOtherController(d state.Decision, pl state.Placement) bool {
	ref := metav1.GetControllerOfNoCopy(&d.Meta)
	return ref == nil || ref.UID == pl.Meta.UID
}

// chooseClusters chooses clusters, with the published decisions in place of rows.
func (p *DecisionPublisher) chooseClusters(pl state.Placement, now []state.Decision) (map[string]v1alpha1.ClusterDecision, schedule.Decision) {
	f := p.filterOf(pl)
	in := schedule.Input{
		BundleUID: string(pl.Meta.UID), Placement: pl.Spec, Filter: f, WhenUnfit: v1alpha1.UnfitRemove,
		SkipExplanations: !p.explainAll, Rows: map[string]atoll.RowSpec{}, Now: time.Now(), PendingFailback: p.lastDecisionOf(pl.Key()).better,
	}
	for _, c := range p.Clusters.List() {
		in.Clusters = append(in.Clusters, p.Views.ViewOf(c))
	}
	slices.SortFunc(in.Clusters, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range now {
		for _, c := range d.Status.Decisions {
			in.Rows[c.ClusterName] = rowFromDecision(d, c)
		}
	}
	if p.SetInterest != nil {
		p.SetInterest(&in, pl.Meta.Namespace)
	}
	d := schedule.DecidePlacement(in)
	chosen := map[string]v1alpha1.ClusterDecision{}
	for _, v := range d.Verdicts {
		switch v.Outcome {
		case schedule.OutcomePlaced:
			chosen[v.Cluster] = v1alpha1.ClusterDecision{ClusterName: v.Cluster, ClusterUID: v.UID, GroupName: v.Group}
		case schedule.OutcomeKept:
			chosen[v.Cluster] = v1alpha1.ClusterDecision{ClusterName: v.Cluster, ClusterUID: v.UID, GroupName: v.Group, Reason: v.Reason}
		}
	}
	return chosen, d
}

func (p *DecisionPublisher) writeDecision(ctx context.Context, d state.Decision) (err error) {
	obj := d.ToObject()
	if d.Meta.ResourceVersion == "" {
		err = p.Client.Create(ctx, obj, fieldOwner)
	} else {
		err = p.Client.Update(ctx, obj, fieldOwner)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("write %s: %w", d.Meta.Name, errConflict)
	} else if err != nil {
		return fmt.Errorf("write %s: %w", d.Meta.Name, err)
	}
	p.Decisions.Put(obj)
	return nil
}

func (p *DecisionPublisher) deleteDecision(ctx context.Context, d state.Decision) error {
	obj := d.ToObject()
	pre := client.Preconditions{UID: &d.Meta.UID, ResourceVersion: &d.Meta.ResourceVersion}
	switch err := p.Client.Delete(ctx, obj, pre); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("delete %s: %w", d.Meta.Name, errConflict)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("delete %s: %w", d.Meta.Name, err)
	}
	p.Decisions.Remove(obj)
	return nil
}

// writeStatus writes how many clusters were chosen.
func (p *DecisionPublisher) writeStatus(ctx context.Context, pl state.Placement, chosen int, noFit bool) error {
	next := *pl.Status.DeepCopy()
	next.ObservedGeneration, next.NumberOfSelectedClusters = pl.Meta.Generation, int32(chosen)
	c := metav1.Condition{
		Type: v1alpha1.PlacementSatisfied, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonChosen), ObservedGeneration: pl.Meta.Generation,
		Message: "the chosen clusters are in its decisions",
	}
	switch {
	case noFit && chosen > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonNoClusterFits), "no cluster fits any more; what was chosen before stays chosen until another fits"
	case noFit:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(atoll.ReasonNoClusterFits), "no cluster fits"
	}
	meta.SetStatusCondition(&next.Conditions, c)
	if apiequality.Semantic.DeepEqual(pl.Status, next) {
		return nil
	}
	pl.Status = next
	switch err := p.Client.Status().Update(ctx, pl.ToObject(), fieldOwner); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("write the status: %w", errConflict)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
