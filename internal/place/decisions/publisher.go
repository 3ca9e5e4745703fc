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

// Decisions is the table of what is published.
type Decisions interface {
	OfPlacement(key types.NamespacedName) []state.Decision
	Put(obj client.Object)
	Drop(obj client.Object)
	Subscribe(fn func(placement types.NamespacedName))
}

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Hub says whether the hub holds.
type Hub interface {
	Holding() (reason string, holding bool)
	Subscribe(fn func())
}

// Views makes of a Cluster what placement sees of it, and says when that changes though
// the Cluster does not.
type Views interface {
	Of(c *v1alpha1.Cluster) schedule.Cluster
	Subscribe(fn func(name string))
}

// Sets says on which ClusterSets namespaces may place.
type Sets interface {
	Bound(namespace string) []string
	// Subscribe to namespaces for which that changed; "" stands for all that have no
	// binding.
	Subscribe(fn func(namespace string))
}

// Config of a Publisher. All but Sets and Log must be set.
type Config struct {
	Placements Placements
	Decisions  Decisions
	Clusters   Clusters
	Hub        Hub
	Views      Views
	Client     client.Client
	// Sets that limit namespaces; nil: none are limited.
	Sets Sets
	// Feed adds to a decision for the namespace what scores ask for; nil: nothing.
	Feed func(in *schedule.Input, namespace string)
	// Log; nil: slog's default.
	Log *slog.Logger
}

// gather is how long changes of clusters are gathered before a Placement is decided
// anew: a decision looks at all of the fleet.
const gather = time.Second

// owner is the field manager of what is published.
const owner = client.FieldOwner("atoll-hub")

// errMoved: somebody else wrote it meanwhile; the next look will tell.
var errMoved = errors.New("it changed since it was read")

// Publisher of what Placements choose.
type Publisher struct {
	Config
	// telling: decisions say of each cluster why.
	telling bool

	loop *reconcile.Loop[types.NamespacedName]

	mu      sync.Mutex
	known   map[string]schedule.Cluster // nil before Run
	filters map[types.NamespacedName]compiled
	// standings of the last decisions.
	standings map[types.NamespacedName]standing
}

// compiled filter of a Placement.
type compiled struct {
	uid        types.UID
	generation int64
	bound      []string
	rebalance  time.Time
	filter     *schedule.Filter
}

// New makes a Publisher and subscribes it to the tables.
func New(cfg Config) *Publisher {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Publisher{Config: cfg, filters: map[types.NamespacedName]compiled{}, standings: map[types.NamespacedName]standing{}}
	p.loop = reconcile.New("decisions", p.keep, func(key types.NamespacedName, err error) {
		if !errors.Is(err, errMoved) {
			p.Log.Warn("what a placement chose could not be published, trying again", "namespace", key.Namespace, "placement", key.Name, "err", err)
		}
	})
	cfg.Placements.Subscribe(p.loop.Look)
	cfg.Decisions.Subscribe(func(key types.NamespacedName) { p.loop.LookAfter(key, gather) })
	cfg.Clusters.Subscribe(p.clusterChanged)
	cfg.Views.Subscribe(p.clusterChanged)
	cfg.Hub.Subscribe(p.lookAtAll)
	if cfg.Sets != nil {
		cfg.Sets.Subscribe(p.boundChanged)
	}
	return p
}

// boundChanged looks at the Placements of a namespace; "" stands for any.
func (p *Publisher) boundChanged(namespace string) {
	for _, pl := range p.Placements.List() {
		if namespace == "" || pl.Meta.Namespace == namespace {
			p.loop.Look(pl.Key())
		}
	}
}

// bound gives the sets that limit a Placement; nil: none does.
func (p *Publisher) bound(pl state.Placement) []string {
	if p.Sets == nil {
		return nil
	}
	return schedule.Limits(pl.Meta.Namespace, v1alpha1.SourcePropagationPolicy, p.Sets.Bound)
}

// Run until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	p.loop.Run(ctx, func() {
		p.learn()
		p.lookAtAll()
	})
	return nil
}

// learn the clusters as they are now, which is what later changes are compared with.
func (p *Publisher) learn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = map[string]schedule.Cluster{}
	for _, c := range p.Clusters.List() {
		p.known[c.Name] = p.Views.Of(c)
	}
}

func (p *Publisher) lookAtAll() {
	for _, pl := range p.Placements.List() {
		p.loop.Look(pl.Key())
	}
}

// clusterChanged looks at the Placements that the cluster fits, or did.
func (p *Publisher) clusterChanged(name string) {
	c, ok := p.Clusters.Get(name)
	p.mu.Lock()
	if p.known == nil {
		p.mu.Unlock()
		return
	}
	was, known := p.known[name]
	is := schedule.Cluster{}
	if delete(p.known, name); ok {
		is = p.Views.Of(c)
		p.known[name] = is
	}
	p.mu.Unlock()
	if known == ok && same(was, is) {
		if !slices.Equal(was.Resources, is.Resources) {
			p.rescore(&is)
		}
		return
	}
	for _, pl := range p.Placements.List() {
		if f := p.filter(pl); known && fits(f, was) || ok && fits(f, is) {
			p.loop.LookAfter(pl.Key(), gather)
		}
	}
}

// same tells whether two states of a cluster are the same to every placement: what only
// scores look at is read when somebody chooses, and is no reason to choose again.
func same(was, is schedule.Cluster) bool {
	was.Resources, is.Resources = nil, nil
	return reflect.DeepEqual(was, is)
}

func fits(f *schedule.Filter, c schedule.Cluster) bool {
	ok, _, _ := f.Fits(c)
	return ok
}

// filter of a Placement, compiled once.
func (p *Publisher) filter(pl state.Placement) *schedule.Filter {
	bound, rebalance := p.bound(pl), atoll.RebalanceAsked(pl.Meta.Annotations)
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.filters[pl.Key()]
	if !ok || c.uid != pl.Meta.UID || c.generation != pl.Meta.Generation || !slices.Equal(c.bound, bound) || !c.rebalance.Equal(rebalance) {
		c = compiled{pl.Meta.UID, pl.Meta.Generation, bound, rebalance, schedule.Terms{Placement: pl.Spec, Bound: bound, Rebalance: rebalance}.Compile()}
		p.filters[pl.Key()] = c
	}
	return c.filter
}

// keep what a Placement chooses published, and look again when time alone changes that.
func (p *Publisher) keep(ctx context.Context, key types.NamespacedName) (again time.Duration, err error) {
	at, err := p.publish(ctx, key)
	if err != nil || at.IsZero() {
		return 0, err
	}
	return max(time.Until(at), time.Millisecond), nil
}

// publish what a Placement chooses now; at is when time alone changes that, zero: never.
func (p *Publisher) publish(ctx context.Context, key types.NamespacedName) (at time.Time, err error) {
	pl, ok := p.Placements.Get(key)
	if _, holding := p.Hub.Holding(); holding || !ok || pl.Meta.DeletionTimestamp != nil {
		if !ok {
			p.mu.Lock()
			delete(p.filters, key)
			delete(p.standings, key)
			p.mu.Unlock()
		}
		return time.Time{}, nil
	}
	now := p.Decisions.OfPlacement(key)
	if i := slices.IndexFunc(now, func(d state.Decision) bool { return !ownedBy(d, pl) }); i >= 0 {
		// Of a Placement of that name that is gone; the garbage collector takes it away.
		return time.Time{}, fmt.Errorf("%s is of another placement: %w", now[i].Meta.Name, errMoved)
	}
	chosen, d := p.choose(pl, now)
	out := layOut(pl, now, chosen)
	out.remember(now, d)
	for _, w := range out.write {
		if err := p.write(ctx, w); err != nil {
			return time.Time{}, err
		}
	}
	for _, w := range out.drop {
		if err := p.drop(ctx, w); err != nil {
			return time.Time{}, err
		}
	}
	p.stands(key, d, chosen)
	return soonest(d.EvictAt, d.LookAt), p.report(ctx, pl, len(chosen), d.NoFit)
}

func ownedBy(d state.Decision, pl state.Placement) bool {
	ref := metav1.GetControllerOfNoCopy(&d.Meta)
	return ref == nil || ref.UID == pl.Meta.UID
}

// choose clusters, with what was published in the place of rows.
func (p *Publisher) choose(pl state.Placement, now []state.Decision) (map[string]v1alpha1.ClusterDecision, schedule.Decision) {
	f := p.filter(pl)
	in := schedule.Input{
		Bundle: string(pl.Meta.UID), Placement: pl.Spec, Filter: f, WhenUnfit: v1alpha1.UnfitRemove,
		Terse: !p.telling, Rows: map[string]atoll.RowSpec{}, Now: time.Now(), Better: p.stood(pl.Key()).better,
	}
	for _, c := range p.Clusters.List() {
		in.Clusters = append(in.Clusters, p.Views.Of(c))
	}
	slices.SortFunc(in.Clusters, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, d := range now {
		for _, c := range d.Status.Decisions {
			in.Rows[c.ClusterName] = remembered(d, c)
		}
	}
	if p.Feed != nil {
		p.Feed(&in, pl.Meta.Namespace)
	}
	d := schedule.Schedule(in)
	chosen := map[string]v1alpha1.ClusterDecision{}
	for _, v := range d.Verdicts {
		switch v.Outcome {
		case schedule.Placed:
			chosen[v.Cluster] = v1alpha1.ClusterDecision{ClusterName: v.Cluster, ClusterUID: v.UID, GroupName: v.Group}
		case schedule.Kept:
			chosen[v.Cluster] = v1alpha1.ClusterDecision{ClusterName: v.Cluster, ClusterUID: v.UID, GroupName: v.Group, Reason: v.Reason}
		}
	}
	return chosen, d
}

func (p *Publisher) write(ctx context.Context, d state.Decision) (err error) {
	obj := d.Object()
	if d.Meta.ResourceVersion == "" {
		err = p.Client.Create(ctx, obj, owner)
	} else {
		err = p.Client.Update(ctx, obj, owner)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("write %s: %w", d.Meta.Name, errMoved)
	} else if err != nil {
		return fmt.Errorf("write %s: %w", d.Meta.Name, err)
	}
	p.Decisions.Put(obj)
	return nil
}

func (p *Publisher) drop(ctx context.Context, d state.Decision) error {
	obj := d.Object()
	pre := client.Preconditions{UID: &d.Meta.UID, ResourceVersion: &d.Meta.ResourceVersion}
	switch err := p.Client.Delete(ctx, obj, pre); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("delete %s: %w", d.Meta.Name, errMoved)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("delete %s: %w", d.Meta.Name, err)
	}
	p.Decisions.Drop(obj)
	return nil
}

// report how much was chosen.
func (p *Publisher) report(ctx context.Context, pl state.Placement, chosen int, noFit bool) error {
	next := *pl.Status.DeepCopy()
	next.NumberOfSelectedClusters = int32(chosen)
	c := metav1.Condition{
		Type: v1alpha1.PlacementSatisfied, Status: metav1.ConditionTrue, Reason: "Chosen", ObservedGeneration: pl.Meta.Generation,
		Message: "what it chooses is in its decisions",
	}
	switch {
	case noFit && chosen > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NoClusterFits", "no cluster fits any more; what was chosen before stays chosen until another fits"
	case noFit:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NoClusterFits", "no cluster fits"
	}
	meta.SetStatusCondition(&next.Conditions, c)
	if apiequality.Semantic.DeepEqual(pl.Status, next) {
		return nil
	}
	pl.Status = next
	switch err := p.Client.Status().Update(ctx, pl.Object(), owner); {
	case apierrors.IsConflict(err):
		return fmt.Errorf("write the status: %w", errMoved)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
