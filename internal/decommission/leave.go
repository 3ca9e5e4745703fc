package decommission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/state"
)

// gather is how long further changes of a cluster's rows may join one.
const gather = 500 * time.Millisecond

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	IsOnline(uid string) bool
	Subscribe(fn func(name string))
}

// Rows is the table of rows.
type Rows interface {
	ListOfCluster(clusterUID string) []state.Row
	Subscribe(fn func(bundleUID string, clusters []string))
}

// Revisions is the table of Revisions.
type Revisions interface {
	GetContent(ctx context.Context, name string) (*atoll.Content, error)
}

// Hub reports whether the hub holds.
type Hub interface {
	HoldReason() (reason string, holding bool)
	Subscribe(fn func())
}

// Config of a Reconciler. All but Log must be set.
type Config struct {
	Clusters  Clusters
	Rows      Rows
	Revisions Revisions
	Hub       Hub
	// Client writes what the leader decides; Serving, what any hub may that is in touch
	// with the store. Neither reads from a cache.
	Client, Serving client.Client
	// NotifyAdmin records an Event of a Cluster. It must not block.
	NotifyAdmin func(c *v1alpha1.Cluster, reason atoll.Reason, message string)
	// Log; nil: slog's default.
	Log *slog.Logger
}

// RemovalReconciler reconciles clusters that leave the fleet. Make it with New.
type RemovalReconciler struct {
	Config

	loop *reconcile.Loop[string] // by name

	mu     sync.Mutex
	leaves map[string]planned // by name: those that do, and those that are drained
}

// planned is the plan of a removal as it was worked out last; empty where it was not.
type planned struct{ terms, plan string }

// New returns a RemovalReconciler and subscribes it to the tables.
func New(cfg Config) *RemovalReconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &RemovalReconciler{Config: cfg, leaves: map[string]planned{}}
	r.loop = reconcile.New(reconcile.Options[string]{
		Name: "leave", Reconcile: r.reconcileCluster,
		Failed: func(name string, err error) {
			if !apierrors.IsConflict(err) { // else the table is about to have it
				r.Log.Warn("the removal of a cluster does not go on, trying again", "cluster", name, "err", err)
			}
		},
	})
	cfg.Clusters.Subscribe(r.trackClusterRemoval)
	cfg.Rows.Subscribe(r.enqueueLeavingAmong)
	cfg.Hub.Subscribe(r.enqueueAllLeaving)
	return r
}

// Run works until ctx ends. It is called once, when the tables are synced.
func (r *RemovalReconciler) Run(ctx context.Context) error {
	r.loop.Run(ctx, func() {
		for _, c := range r.Clusters.List() {
			r.trackClusterRemoval(c.Name)
		}
	})
	return nil
}

// trackClusterRemoval looks at a cluster that leaves or is drained, or does so no more.
func (r *RemovalReconciler) trackClusterRemoval(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.Clusters.Get(name)
	if !ok || c.Spec.Removal == nil && c.Spec.FindDrain() == nil {
		delete(r.leaves, name)
	} else if _, leaves := r.leaves[name]; !leaves {
		r.leaves[name] = planned{}
	}
	if ok && (c.Spec.Removal != nil || removalCondition(c) != nil || c.Status.Removal != nil || isDrainReported(c)) {
		r.loop.EnqueueNow(name)
	}
}

func removalCondition(c *v1alpha1.Cluster) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterRemoving)
}

func (r *RemovalReconciler) enqueueLeavingAmong(_ string, clusters []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leaves) == 0 {
		return
	}
	for _, name := range clusters {
		if _, leaves := r.leaves[name]; leaves {
			r.loop.EnqueueAfter(name, gather)
		}
	}
}

// enqueueAllLeaving enqueues the clusters that leave, because the hub begins or ends to hold.
func (r *RemovalReconciler) enqueueAllLeaving() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.leaves {
		r.loop.EnqueueNow(name)
	}
}

// reconcileCluster reconciles one Cluster.
func (r *RemovalReconciler) reconcileCluster(ctx context.Context, name string) (again time.Duration, err error) {
	c, ok := r.Clusters.Get(name)
	switch {
	case !ok || c.DeletionTimestamp != nil:
		return 0, nil
	case c.Spec.Removal == nil:
		return 0, r.reportDrain(ctx, c)
	}
	s := r.gatherRemovalFacts(ctx, c)
	v := decideRemoval(s)
	if v.forget {
		behind, err := r.listItemsStillInMember(ctx, s.rows)
		if err != nil {
			return 0, err
		}
		r.Log.Info("a Cluster is deleted at the end of its removal", "cluster", name, "uid", c.UID, "reason", v.reason, "leftBehind", len(behind))
		return 0, r.forgetCluster(ctx, r.Client, c, v.reason, behind)
	}
	if err := r.writeRemovalProgress(ctx, c, v); err != nil {
		return 0, err
	}
	return 0, s.unknown
}

// gatherRemovalFacts returns the state of a removal, as the tables have it.
func (r *RemovalReconciler) gatherRemovalFacts(ctx context.Context, c *v1alpha1.Cluster) removalFacts {
	uid := string(c.UID)
	s := removalFacts{
		name: c.Name, removal: *c.Spec.Removal, formerStatus: c.Status.Removal, accepted: c.Spec.Accepted,
		joined: meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined), online: r.Clusters.IsOnline(uid),
	}
	s.joined = s.joined || s.online // its status may be about to have it
	if why, holds := r.Hub.HoldReason(); holds {
		s.holding = why
	}
	for _, row := range r.Rows.ListOfCluster(uid) {
		s.joined = s.joined || row.Status != nil
		if !row.Bundle.IsNamespaceRef() {
			s.rows = append(s.rows, row)
		}
	}
	if c.IsRemovalHeld() && !s.removal.Force {
		s.plan, s.unknown = r.cachedCleanPlanHash(ctx, c, s.rows)
	}
	return s
}

// cachedCleanPlanHash returns the plan of a held removal, which may be held for days: reports of rows do
// not change it, and nothing is read for it.
func (r *RemovalReconciler) cachedCleanPlanHash(ctx context.Context, c *v1alpha1.Cluster, rows []state.Row) (string, error) {
	terms := cleanPlanFingerprint(c, rows)
	r.mu.Lock()
	last := r.leaves[c.Name]
	r.mu.Unlock()
	if last.terms == terms {
		return last.plan, nil
	}
	plan, err := HashCleanPlan(ctx, r.Revisions, c, rows)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, leaves := r.leaves[c.Name]; leaves {
		r.leaves[c.Name] = planned{terms, plan}
	}
	return plan, nil
}

// writeRemovalProgress writes how far a removal is, where that is news.
func (r *RemovalReconciler) writeRemovalProgress(ctx context.Context, c *v1alpha1.Cluster, v removalVerdict) error {
	write := c.DeepCopy()
	write.Status.Removal = &v.status
	clearDrain(write)
	changed := meta.SetStatusCondition(&write.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ClusterRemoving, Status: metav1.ConditionTrue, Reason: string(v.reason), Message: v.message, ObservedGeneration: c.Generation,
	})
	if !changed && apiequality.Semantic.DeepEqual(c.Status, write.Status) {
		return nil
	}
	if err := r.writeClusterStatus(ctx, write); err != nil {
		return err
	}
	if plan := v.status.Plan; plan != "" && (c.Status.Removal == nil || c.Status.Removal.Plan != plan) {
		r.NotifyAdmin(c, atoll.ReasonRemovalHeld, v.message)
	}
	return nil
}

func (r *RemovalReconciler) writeClusterStatus(ctx context.Context, c *v1alpha1.Cluster) error {
	if err := r.Client.Status().Update(ctx, c); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write how far the removal of cluster %s is: %w", c.Name, err)
	}
	return nil
}

// ForgetDepartedCluster deletes a Cluster whose agent has released its member, if it is unchanged;
// behind is what stays there although it should have gone, as the agent reports.
func (r *RemovalReconciler) ForgetDepartedCluster(ctx context.Context, c *v1alpha1.Cluster, behind []string) error {
	if c.Spec.Removal == nil {
		return errors.New("its removal was taken back")
	}
	for i := range behind {
		behind[i] = phrase.TruncateText(behind[i], maxText)
	}
	r.Log.Info("a cluster has left the fleet", "cluster", c.Name, "uid", c.UID, "mode", c.Spec.Removal.Mode, "leftBehind", len(behind))
	return r.forgetCluster(ctx, r.Serving, c, atoll.ReasonLeft, behind)
}

// RecordDepartureBlocker records the blocker of a cluster's agent, and its begin; "": nothing blocks any
// more. A recorded blocker keeps its time: each session begins with a report. It returns a
// conflict where the Cluster has changed.
func (r *RemovalReconciler) RecordDepartureBlocker(ctx context.Context, c *v1alpha1.Cluster, waits string, since time.Time) error {
	before := ""
	if c.Status.Removal != nil {
		before = c.Status.Removal.AgentWaitsFor
	}
	if waits = phrase.TruncateText(waits, maxText); c.Spec.Removal == nil || waits == before { // or it was taken back
		return nil
	}
	write := c.DeepCopy()
	if write.Status.Removal == nil {
		write.Status.Removal = &v1alpha1.ClusterRemovalStatus{}
	}
	s := write.Status.Removal
	if s.AgentWaitsFor, s.AgentWaitsSince = waits, nil; waits != "" {
		s.AgentWaitsSince = &metav1.Time{Time: clampAgentTime(since, c.CreationTimestamp.Time, time.Now())}
	}
	if err := r.Serving.Status().Update(ctx, write); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write what the agent of cluster %s waits for: %w", c.Name, err)
	}
	return nil
}

// clampAgentTime returns an agent's time, which the agent may set as it likes, within the life of
// its Cluster. A year without four digits would be stored, and then no Cluster could be read.
func clampAgentTime(said, from, to time.Time) time.Time {
	switch {
	case said.After(to):
		return to
	case said.Before(from):
		return from
	}
	return said
}

// forgetCluster deletes the Cluster, after what is left behind is written down.
func (r *RemovalReconciler) forgetCluster(ctx context.Context, w client.Client, c *v1alpha1.Cluster, why atoll.Reason, behind []string) error {
	if len(behind) > 0 {
		if err := recordLeftBehind(ctx, w, c, string(why), behind, time.Now()); err != nil {
			return err
		}
	}
	err := w.Delete(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: c.Name}},
		client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete cluster %s: %w", c.Name, err)
	}
	return nil
}
