// Package failover taints lost clusters, and untaints those that recovered. The taints are atoll.dev/unreachable and
// atoll.dev/not-ready. Placement moves Bundles because of them.
//
// Contract: one ClusterReconciler for each hub writes, while its hub leads and the HubSettings state a failover. Without that it
// removes its taints and tracks no cluster. Package loss decides. A cluster is written when it is tainted or
// untainted, and the condition FailoverPaused of the HubSettings when it changes. A change of a cluster costs the same in each
// fleet. The hub's start counts as no loss. Run is called once, when the tables are synced.
package failover

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/failover/loss"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/reconcile"
)

// startGrace is how long after its start the hub taints no cluster: agents connect again in that time.
const startGrace = 2 * time.Minute

// settingsKey is the key of an edit of the settings, conditionKey that of their condition. No Cluster has such a name.
const (
	settingsKey  = "settings/"
	conditionKey = "condition/"
)

// fieldOwner is the field manager of the taints and of the condition.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// Clusters is the table of Clusters.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Settings are the HubSettings in memory.
type Settings interface {
	Failover() *v1alpha1.ClusterFailover
	Subscribe(fn func(name string))
}

// Config of a ClusterReconciler. All fields must be set.
type Config struct {
	Clusters Clusters
	Settings Settings
	Client   client.Client
	// NotifyAdmin records an Event of a Cluster. It must not block.
	NotifyAdmin func(c *v1alpha1.Cluster, reason atoll.Reason, message string)
	Metrics     prometheus.Registerer
	Log         *slog.Logger
}

// ClusterReconciler taints lost clusters. Make it with New.
type ClusterReconciler struct {
	Config
	loop    *reconcile.Loop[string]
	gauge   *prometheus.GaugeVec
	started time.Time
	// tracks is false while no failover is stated: then changes of clusters cost nothing.
	tracks atomic.Bool

	// The one worker of the loop uses these alone. fleet is nil while no failover is stated.
	fleet    *loss.Fleet
	isPaused bool
}

// New makes a ClusterReconciler and subscribes it to the tables.
func New(c Config) *ClusterReconciler {
	r := &ClusterReconciler{Config: c, gauge: metrictable.FailoverClusters.NewGaugeVec()}
	c.Metrics.MustRegister(r.gauge)
	r.loop = reconcile.New(reconcile.Options[string]{
		Name: "failover", Reconcile: r.reconcileKey,
		Failed: func(key string, err error) {
			if !apierrors.IsConflict(err) {
				c.Log.Warn("could not taint a lost cluster, or untaint it; trying again", "key", key, "err", err)
			}
		},
	})
	c.Clusters.Subscribe(func(name string) {
		if r.tracks.Load() {
			r.loop.EnqueueNow(name)
		}
	})
	c.Settings.Subscribe(func(string) { r.loop.EnqueueNow(settingsKey) })
	return r
}

// Run works until ctx ends.
func (r *ClusterReconciler) Run(ctx context.Context) error {
	r.started = time.Now()
	r.loop.Run(ctx, func() { r.loop.EnqueueRecheck(settingsKey, 0) })
	return nil
}

// reconcileKey reconciles a cluster, an edit of the settings, or their condition.
func (r *ClusterReconciler) reconcileKey(ctx context.Context, key string) (time.Duration, error) {
	switch key {
	case settingsKey:
		r.followSettings()
		return 0, r.writeCondition(ctx)
	case conditionKey:
		return 0, r.writeCondition(ctx)
	}
	return r.reconcileCluster(ctx, key)
}

// followSettings begins to track the clusters, or stops, and reconciles the clusters that the settings concern. It reads all
// Clusters, because only people edit the settings. All clusters are counted before one is judged. An edit of the terms
// keeps the counts and the rates.
func (r *ClusterReconciler) followSettings() {
	isStated, begins := r.Settings.Failover() != nil, false
	switch {
	case !isStated:
		r.fleet = nil
	case r.fleet == nil:
		r.fleet, begins = loss.NewFleet(r.started.Add(startGrace)), true
	}
	r.tracks.Store(isStated)
	now := time.Now()
	for _, c := range r.Clusters.List() {
		if begins {
			r.trackCluster(c.Name, c, true, now)
		}
		if r.fleet != nil || loss.IsTainted(c) {
			r.loop.EnqueueRecheck(c.Name, 0)
		}
	}
	r.reportCounts()
}

// reconcileCluster taints a cluster or untaints it, when this is due.
func (r *ClusterReconciler) reconcileCluster(ctx context.Context, name string) (time.Duration, error) {
	c, exists := r.Clusters.Get(name)
	now := time.Now()
	s := r.Settings.Failover()
	what, why, at := r.decideCluster(name, c, exists, s, now)
	r.reportCounts()
	switch what {
	case loss.AddTaint:
		return 0, r.addTaint(ctx, c, why, s.After.Duration, now)
	case loss.RemoveTaint:
		return 0, r.removeTaint(ctx, c)
	}
	if at.IsZero() {
		return 0, nil
	}
	return max(at.Sub(now), time.Millisecond), nil
}

// decideCluster returns what is due for a cluster by the settings, which are nil where no failover is stated, and else
// when it is.
func (r *ClusterReconciler) decideCluster(name string, c *v1alpha1.Cluster, exists bool, s *v1alpha1.ClusterFailover, now time.Time) (what loss.Action, why loss.Loss, at time.Time) {
	if r.fleet == nil || s == nil {
		if exists && c.DeletionTimestamp == nil && loss.IsTainted(c) {
			return loss.RemoveTaint, 0, time.Time{}
		}
		return loss.Nothing, 0, time.Time{}
	}
	t := loss.TermsOf(s)
	m, isMember := r.trackCluster(name, c, exists, now)
	if isMember {
		what, at = r.fleet.JudgeCluster(name, t, now)
	}
	for _, resumed := range r.fleet.TakeResumable(t) {
		r.loop.EnqueueNow(resumed)
	}
	return what, m.Loss(), at
}

// trackCluster puts a cluster into the fleet, or takes it out.
func (r *ClusterReconciler) trackCluster(name string, c *v1alpha1.Cluster, exists bool, now time.Time) (m loss.Member, isMember bool) {
	if exists {
		m, isMember = loss.MemberOf(c)
	}
	if isMember {
		r.fleet.SetMember(name, m, now)
	} else {
		r.fleet.RemoveMember(name)
	}
	return m, isMember
}

// reportCounts sets the metric, and requests the condition when it changes.
func (r *ClusterReconciler) reportCounts() {
	var n loss.Counts
	if r.fleet != nil {
		n = r.fleet.CountClusters()
	}
	r.gauge.WithLabelValues("Lost").Set(float64(n.Lost))
	r.gauge.WithLabelValues("Tainted").Set(float64(n.Tainted))
	r.gauge.WithLabelValues("Paused").Set(float64(n.Paused))
	if is := n.Paused > 0; is != r.isPaused {
		r.isPaused = is
		r.loop.EnqueueNow(conditionKey)
	}
}

func (r *ClusterReconciler) addTaint(ctx context.Context, c *v1alpha1.Cluster, why loss.Loss, after time.Duration, now time.Time) error {
	if err := r.patchCluster(ctx, c, loss.WithTaint(c, why, now)); err != nil {
		return err
	}
	r.NotifyAdmin(c, atoll.ReasonClusterTainted, fmt.Sprintf("the hub tainted the cluster, which is lost for more than %s: Bundles with a place elsewhere leave it (taint %s)",
		phrase.FormatDuration(after), why.TaintKey()))
	return nil
}

func (r *ClusterReconciler) removeTaint(ctx context.Context, c *v1alpha1.Cluster) error {
	if err := r.patchCluster(ctx, c, loss.WithoutTaint(c)); err != nil {
		return err
	}
	r.NotifyAdmin(c, atoll.ReasonTaintRemoved, "the cluster is ready again, and the hub removed its taint")
	return nil
}

// patchCluster writes the taints of a Cluster, if the Cluster is still the old one.
func (r *ClusterReconciler) patchCluster(ctx context.Context, old, now *v1alpha1.Cluster) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, now, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the taints of Cluster %s: %w", old.Name, err)
	}
	return nil
}
