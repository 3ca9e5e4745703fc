// Package sigdecisions publishes each PlacementDecision of Atoll as a PlacementDecision of
// Kubernetes' SIG Multicluster (KEP-5313), which refers to the published ClusterProfiles.
//
// Contract: one Publisher for each hub writes, while its hub leads. A published object follows from
// Atoll's PlacementDecision alone (decisionOf, a pure function). It has the same name, the same
// namespace and at most as many clusters. The decisions of a ClusterPlacement are in the namespace
// of the profiles. It is written when its content changes. Atoll's PlacementDecision owns it, and
// the garbage collector deletes both together. The Publisher deletes an object only when
// HubSettings turn profiles off. An object of another owner is never changed. Run is called once,
// when the tables are synced. Memory for each object is 16 bytes and its name.
package sigdecisions

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

// SchedulerName is the name under which the hub publishes decisions.
const SchedulerName = "atoll"

// Placements is the table of Placements.
type Placements interface {
	List() []state.Placement
}

// Decisions is the table of Atoll's PlacementDecisions.
type Decisions interface {
	OfPlacement(key types.NamespacedName) []state.Decision
	Subscribe(fn func(placement types.NamespacedName))
}

// Settings define whether the hub publishes anything for other tools.
type Settings interface {
	PublishesProfiles() bool
	Subscribe(fn func(name string))
}

// Config of a Publisher. All must be set. Client must not read from a cache.
type Config struct {
	Placements Placements
	Decisions  Decisions
	Settings   Settings
	Client     client.Client
	Log        *slog.Logger
}

// MulticlusterPublisher publishes decisions. Make it with New.
type MulticlusterPublisher struct {
	Config
	loop *reconcile.Loop[types.NamespacedName] // by Placement

	mu sync.Mutex
	// published has the fingerprint of each known object, by Placement and name. An empty one
	// means that there is no such object.
	published map[types.NamespacedName]map[string]string
}

// New makes a Publisher and subscribes it to the tables.
func New(cfg Config) *MulticlusterPublisher {
	p := &MulticlusterPublisher{Config: cfg, published: map[types.NamespacedName]map[string]string{}}
	p.loop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "sigdecisions",
		Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			return 0, p.reconcileMulticlusterDecisions(ctx, key)
		},
		Failed: func(key types.NamespacedName, err error) {
			if !apierrors.IsConflict(err) {
				p.Log.Warn("a decision is not published for other tools; trying again", "namespace", key.Namespace, "placement", key.Name, "err", err)
			}
		},
	})
	cfg.Decisions.Subscribe(p.loop.EnqueueNow)
	cfg.Settings.Subscribe(func(string) { p.enqueueAllPlacements() })
	return p
}

// Run works until ctx ends.
func (p *MulticlusterPublisher) Run(ctx context.Context) error {
	p.loop.Run(ctx, p.enqueueAllPlacements)
	return nil
}

func (p *MulticlusterPublisher) enqueueAllPlacements() {
	for _, pl := range p.Placements.List() {
		p.loop.EnqueueRecheck(pl.Key(), 0)
	}
}

// reconcileMulticlusterDecisions publishes the decisions of a Placement, or withdraws them.
func (p *MulticlusterPublisher) reconcileMulticlusterDecisions(ctx context.Context, key types.NamespacedName) error {
	all := p.Decisions.OfPlacement(key)
	p.mu.Lock()
	before, now := p.published[key], make(map[string]string, len(all))
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.published[key] = now; len(now) == 0 {
			delete(p.published, key)
		}
	}()
	publishes := p.Settings.PublishesProfiles()
	for _, d := range all {
		want := decisionOf(d)
		is := ""
		if publishes {
			is = fingerprintOf(want)
		}
		if was, known := before[d.Meta.Name]; !known || was != is {
			if err := p.writeDecision(ctx, want, publishes); err != nil {
				return err
			}
		}
		now[d.Meta.Name] = is
	}
	return nil
}

// writeDecision makes the stored object equal to want, or deletes it.
func (p *MulticlusterPublisher) writeDecision(ctx context.Context, want *multicluster.PlacementDecision, publishes bool) error {
	var now multicluster.PlacementDecision
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(want), &now)
	exists := err == nil
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read the published decision %s/%s: %w", want.Namespace, want.Name, err)
	case !publishes && exists && isSameOwner(&now, want):
		err = client.IgnoreNotFound(p.Client.Delete(ctx, &now, client.Preconditions{UID: &now.UID}))
	case !publishes:
		return nil
	case !exists:
		err = p.Client.Create(ctx, want)
	default:
		err = p.updateDecision(ctx, &now, want)
	}
	if err != nil {
		return fmt.Errorf("publish or withdraw the decision %s/%s: %w", want.Namespace, want.Name, err)
	}
	return nil
}

// updateDecision updates a stored object of the same owner when its content differs.
func (p *MulticlusterPublisher) updateDecision(ctx context.Context, now, want *multicluster.PlacementDecision) error {
	if !isSameOwner(now, want) {
		return fmt.Errorf("the name is taken by the scheduler %q, or by a deleted placement: delete that object", now.SchedulerName)
	}
	if fingerprintOf(now) == fingerprintOf(want) {
		return nil
	}
	now.Labels, now.Decisions, now.SchedulerName = want.Labels, want.Decisions, want.SchedulerName
	return p.Client.Update(ctx, now)
}

func isSameOwner(a, b metav1.Object) bool {
	x, y := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	return x != nil && y != nil && x.UID == y.UID
}

// fingerprintOf returns a hash of the published content.
func fingerprintOf(d *multicluster.PlacementDecision) string {
	return atoll.HashJSON([]any{d.Labels, d.Decisions, d.SchedulerName})[:16]
}

// decisionOf returns the published form of one of Atoll's decisions.
func decisionOf(d state.Decision) *multicluster.PlacementDecision {
	kind, ns, yes := "PlacementDecision", d.Meta.Namespace, true
	if ns == "" {
		kind, ns = "ClusterPlacementDecision", multicluster.InventoryNamespace
	}
	out := &multicluster.PlacementDecision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: d.Meta.Name, Labels: map[string]string{multicluster.LabelDecisionKey: d.Meta.Labels[v1alpha1.LabelPlacement]},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: d.Meta.Name, UID: d.Meta.UID, Controller: &yes}},
		},
		Decisions: make([]multicluster.ClusterDecision, 0, len(d.Status.Decisions)), SchedulerName: SchedulerName,
	}
	for _, c := range d.Status.Decisions {
		out.Decisions = append(out.Decisions, multicluster.ClusterDecision{
			ClusterProfileRef: multicluster.ClusterProfileReference{Namespace: multicluster.InventoryNamespace, Name: c.ClusterName}, Reason: c.Reason,
		})
	}
	return out
}
