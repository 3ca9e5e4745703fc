package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/restore"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// recallRetryDelay is how long what could not be settled waits; tableRetryDelay, where
	// only the hub's own table is a moment behind.
	recallRetryDelay = 2 * time.Second
	tableRetryDelay  = 50 * time.Millisecond
	// triesPerWarning tries, a warning is logged that nothing is ordered of a member, and again after
	// as many.
	triesPerWarning = 100
	// summaryDelay is how long further members may join one write of the summary.
	summaryDelay = time.Second
)

// errTableBehind: a template is marked, and the hub's table does not show it yet.
var errTableBehind = errors.New("the hub's table is behind")

// recallQueue holds the members' remembered removals, the newest of each, that are not settled.
type recallQueue struct {
	mu      sync.Mutex
	pending map[string]memberRecall // by Cluster UID
	wake    chan struct{}
}

type memberRecall struct {
	delivery.Remembered
	memory restore.MemberMemory
	tries  int
}

func newRecallQueue() *recallQueue {
	return &recallQueue{pending: map[string]memberRecall{}, wake: make(chan struct{}, 1)}
}

// OnRemembered takes a member's memory.
func (r *RestoreController) OnRemembered(told delivery.Remembered) {
	memory, unread := restore.ParseMemory(told.Tombstones)
	if unread > 0 {
		r.log.Warn("a member recorded removals in a form that this hub cannot read; they do not count", "cluster", told.Cluster, "count", unread)
	}
	told.Tombstones = nil
	r.recalls.mu.Lock()
	r.recalls.pending[told.UID] = memberRecall{Remembered: told, memory: memory}
	r.recalls.mu.Unlock()
	r.recalls.signalWork()
}

func (q *recallQueue) signalWork() { wakeup.WakeReader(q.wake) }

func (q *recallQueue) takeAll() []memberRecall {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := slices.Collect(maps.Values(q.pending))
	clear(q.pending)
	return out
}

// requeueAfter queues it later, unless the member has reported again since.
func (q *recallQueue) requeueAfter(m memberRecall, after time.Duration) {
	m.tries++
	q.mu.Lock()
	if _, newer := q.pending[m.UID]; !newer {
		q.pending[m.UID] = m
	}
	q.mu.Unlock()
	time.AfterFunc(after, q.signalWork)
}

// forgottenRemovals is what of a member's memory the store has forgotten.
type forgottenRemovals struct {
	// templates that are here and were deleted; rows that are here and were removed.
	templates []restore.DeletedTemplate
	rows      map[string]restore.RemovedRow
}

// RunRecall settles the recorded removals of members until ctx ends.
func (r *RestoreController) RunRecall(ctx context.Context) error {
	summary := recallSummary{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.recalls.wake:
		}
		for _, m := range r.recalls.takeAll() {
			r.processRecall(ctx, m, summary)
		}
		if !r.isHolding() {
			clear(summary)
		} else if err := r.writeSummary(ctx, summary); err != nil && ctx.Err() == nil {
			r.log.Warn("the recorded removals of members could not be written down; it counts all the same", "err", err)
		}
	}
}

// processRecall settles one member's memory, or, while the hub holds, only adds it up. A failure is
// retried; until then nothing is ordered of the cluster.
func (r *RestoreController) processRecall(ctx context.Context, m memberRecall, summary recallSummary) {
	found, err := r.findForgotten(ctx, m.Cluster, m.memory)
	switch {
	case err != nil:
	case m.Settled == nil:
		summary[m.Cluster] = found
		return
	default:
		err = r.holdForgotten(ctx, m.Cluster, found)
	}
	if err == nil {
		m.Settled()
		return
	}
	if m.tries > 0 && m.tries%triesPerWarning == 0 {
		r.log.Warn("the recorded removals of a member are not settled yet; nothing is ordered of it before", "cluster", m.Cluster, "err", err)
	}
	after := recallRetryDelay
	if errors.Is(err, errTableBehind) || errors.Is(err, state.ErrRowsMoved) {
		after = tableRetryDelay
	}
	r.recalls.requeueAfter(m, after)
}

// findForgotten finds the removals that the member recorded and the store did not.
func (r *RestoreController) findForgotten(ctx context.Context, cluster string, memory restore.MemberMemory) (forgottenRemovals, error) {
	out := forgottenRemovals{rows: map[string]restore.RemovedRow{}}
	held := map[string]bool{}
	for _, d := range memory.Deleted {
		alive, err := r.needsRecallDecision(ctx, d)
		if err != nil {
			return out, err
		}
		if alive {
			out.templates = append(out.templates, d)
			held[d.UID] = true
		}
	}
	since := time.Time{}
	if st := r.state.Hub.Get(); st != nil && st.Rewound != nil {
		since = st.Rewound.Since.Time
	}
	for bundle, removed := range memory.Rows {
		row, ok := r.state.Rows.Get(bundle, cluster)
		if !ok || row.Bundle.IsNamespaceRef() || !restore.IsRemovalForgotten(row.Spec, removed, since) {
			continue
		}
		content, err := r.state.Revisions.GetContent(ctx, row.Spec.Revision)
		if err != nil {
			return out, fmt.Errorf("read what bundle %s/%s had in cluster %s: %w", row.Bundle.Namespace, row.Bundle.Name, cluster, err)
		}
		if !restore.AllItemsHeldBack(content, held) {
			out.rows[bundle] = removed
		}
	}
	return out, nil
}

// needsRecallDecision reports whether the very template that a user deleted is here, and no decision to
// keep it exists yet.
func (r *RestoreController) needsRecallDecision(ctx context.Context, d restore.DeletedTemplate) (bool, error) {
	mapping, err := r.state.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: d.Key.Group, Kind: d.Key.Kind})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for template %s: %w", d.Key, err)
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := r.state.Client.Get(ctx, client.ObjectKey{Namespace: d.Key.Namespace, Name: d.Key.Name}, &o); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("look for template %s: %w", d.Key, err)
	}
	_, decided := o.Annotations[atoll.AnnotationRecalled]
	_, held := atoll.RememberedDeletionNote(o.Annotations)
	return string(o.UID) == d.UID && o.DeletionTimestamp == nil && (held || !decided), nil
}

// holdForgotten writes what follows: templates are marked, rows are held.
func (r *RestoreController) holdForgotten(ctx context.Context, cluster string, f forgottenRemovals) error {
	for _, d := range f.templates {
		if err := r.markTemplateRecalled(ctx, cluster, d); err != nil {
			return err
		}
	}
	for _, d := range f.templates {
		if !r.needsNoRecallMark(d) {
			return fmt.Errorf("template %s is marked as deleted before the restore: %w", d.Key, errTableBehind)
		}
	}
	for _, bundle := range slices.Sorted(maps.Keys(f.rows)) {
		if err := r.holdRow(ctx, cluster, bundle, f.rows[bundle]); err != nil {
			return err
		}
	}
	if len(f.templates)+len(f.rows) > 0 {
		r.log.Warn("a member recorded removals that this restored hub did not; they are held until a person confirms or keeps them",
			"cluster", cluster, "templates", len(f.templates), "rows", len(f.rows))
	}
	return nil
}

// needsNoRecallMark reports whether the table shows the template as one to hold back. One that is
// not there, or being deleted, needs no mark.
func (r *RestoreController) needsNoRecallMark(d restore.DeletedTemplate) bool {
	if !r.state.Templates.IsSynced(d.Key.Group, d.Key.Kind) {
		return false
	}
	t, ok := r.state.Templates.Get(d.Key)
	return !ok || string(t.GetUID()) != d.UID || t.GetAnnotations()[atoll.AnnotationRecalled] != ""
}

// markTemplateRecalled marks a template, unless it is.
func (r *RestoreController) markTemplateRecalled(ctx context.Context, cluster string, d restore.DeletedTemplate) error {
	if r.needsNoRecallMark(d) {
		return nil
	}
	mapping, err := r.state.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: d.Key.Group, Kind: d.Key.Kind})
	if err != nil {
		return fmt.Errorf("mark template %s: %w", d.Key, err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.UID, "annotations": map[string]string{atoll.AnnotationRecalled: restore.DeletionNote(d, cluster)},
	}})
	if err != nil {
		return err
	}
	var o metav1.PartialObjectMetadata
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	o.SetNamespace(d.Key.Namespace)
	o.SetName(d.Key.Name)
	if err := r.state.Client.Patch(ctx, &o, client.RawPatch(types.MergePatchType, patch), hubFieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("mark template %s as deleted before the restore: %w", d.Key, err)
	}
	return nil
}

// hubFieldOwner is the field manager of what no user wrote.
const hubFieldOwner = client.FieldOwner(atoll.HubFieldManager)

func (r *RestoreController) holdRow(ctx context.Context, cluster, bundle string, removed restore.RemovedRow) error {
	row, ok := r.state.Rows.Get(bundle, cluster)
	b, known := r.state.Bundles.Get(bundle)
	if !ok || !known {
		return nil // it goes anyway
	}
	next := restore.HoldForgottenRemoval(row.Spec, removed, atoll.HashPlacement(b.Spec.Placement), r.state.Hub.GenerationFloor(), time.Now())
	return r.state.Rows.WriteSpecs(ctx, row.Bundle, []state.Row{row}, map[string]*atoll.RowSpec{cluster: &next})
}

// recallSummary is the recorded removals of members, by cluster, while the hub holds.
type recallSummary map[string]forgottenRemovals

// writeSummary writes the summary so far, once for all members that report at about the same time.
func (r *RestoreController) writeSummary(ctx context.Context, t recallSummary) error {
	if !pause.WaitFor(ctx, summaryDelay) {
		return nil
	}
	for _, more := range r.recalls.takeAll() {
		r.processRecall(ctx, more, t)
	}
	now := t.summarizeRecalls(r.state)
	hub, err := updateHubState(ctx, r.state.Client, func(old enginev1.HubState) enginev1.HubState {
		next := *old.DeepCopy()
		if next.Rewound != nil && next.Rewound.Accepted == "" {
			next.Rewound.Told = now
		}
		return next
	})
	if err != nil {
		return err
	}
	r.state.Hub.Put(hub)
	return nil
}

func (t recallSummary) summarizeRecalls(s *state.HubTables) *enginev1.RememberedRemovals {
	var all []restore.MemberSummary
	for cluster, f := range t {
		one := restore.MemberSummary{Cluster: cluster, Deleted: f.templates}
		for uid := range f.rows {
			name := ""
			if b, ok := s.Bundles.Get(uid); ok {
				name = strings.TrimPrefix(b.Ref.Namespace+"/"+b.Ref.Name, "/")
			}
			one.LeftBundles = append(one.LeftBundles, name)
		}
		all = append(all, one)
	}
	return restore.SummarizeMembers(all)
}
