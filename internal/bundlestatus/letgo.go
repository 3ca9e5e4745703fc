package bundlestatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The times of letting go.
const (
	// unheldAfter is how long a template that is being deleted and that no Bundle
	// holds is kept: a Revision with it may just be cut.
	unheldAfter = 4 * time.Second
	// rowlessAfter is how long a Bundle that is being deleted and has no rows is
	// kept: rows may just be written.
	rowlessAfter = 2 * time.Second
	// collectAfter is how long removed rows wait for further ones, to go in one write.
	collectAfter = 2 * time.Second
	// history is how many Revisions are kept though no row names them.
	history = 10
)

// isDeletionHeldByAtoll reports that a template is being deleted and kept by Atoll's finalizer.
func isDeletionHeldByAtoll(t *unstructured.Unstructured) bool {
	return t.GetDeletionTimestamp() != nil && slices.Contains(t.GetFinalizers(), atoll.Finalizer)
}

// releaseFinalizers takes finalizers off what the clusters of this Bundle were waited for.
func (r *BundleReconciler) releaseFinalizers(ctx context.Context, s *bundleSnapshot, m *bundleMemo) error {
	var errs []error
	waits, looked := false, map[string]*heldTemplates{s.uid: s.heldItems()}
	for _, key := range s.possiblyDeletedTemplates() {
		t, ok := r.Templates.Get(key)
		if !ok || !isDeletionHeldByAtoll(t) {
			continue
		}
		released, err := r.releaseTemplate(ctx, key, t, looked)
		waits = waits || !released
		errs = append(errs, err)
	}
	waiting, err := r.releaseBundle(ctx, s, m)
	errs = append(errs, err)
	waits = waits || waiting
	r.index.setWaitingRemoval(s.uid, waits)
	if waits {
		r.wakeAfterGrace(m)
	}
	return errors.Join(errs...)
}

// wakeAfterGrace looks again when clusters are not waited for any more only because
// the hub has started.
func (r *BundleReconciler) wakeAfterGrace(m *bundleMemo) {
	r.mu.Lock()
	left := time.Until(r.started.Add(graceAtStart))
	r.mu.Unlock()
	if left > 0 {
		m.wakeAfter(left)
	}
}

// possiblyDeletedTemplates lists the templates that may be on their way out in this Bundle.
func (s *bundleSnapshot) possiblyDeletedTemplates() []atoll.ItemKey {
	if s.content == nil {
		return nil
	}
	var out []atoll.ItemKey
	for _, t := range s.content.Tombstones {
		out = append(out, t.Key)
	}
	if s.isDeletionOrderedEverywhere() {
		for i := range s.content.Items {
			out = append(out, s.content.Items[i].Key)
		}
	}
	return out
}

// isDeletionOrderedEverywhere reports whether the Bundle, or its namespace, is going and every row has
// its order to go.
func (s *bundleSnapshot) isDeletionOrderedEverywhere() bool {
	return (s.isDeleting() || s.doomed) && !slices.ContainsFunc(s.rows, func(r Row) bool { return r.Spec.Phase != atoll.RowRemoving })
}

// releaseTemplate takes the finalizer off, unless a Bundle still has it in a cluster
// that is waited for. looked stores the Bundles that were looked at.
func (r *BundleReconciler) releaseTemplate(ctx context.Context, key atoll.ItemKey, t *unstructured.Unstructured, looked map[string]*heldTemplates) (released bool, err error) {
	for _, uid := range r.index.templateHolders(key) {
		h := looked[uid]
		if h == nil {
			s, err := r.gatherSnapshot(ctx, uid)
			if err != nil {
				return false, err
			}
			h = s.heldItems()
			looked[uid] = h
		}
		if h.isTemplateHeld(key, string(t.GetUID())) {
			return false, nil
		}
	}
	if err := r.Writer.RemoveFinalizer(ctx, t, atoll.Finalizer); err != nil {
		return false, fmt.Errorf("release template %s: %w", key, err)
	}
	return true, nil
}

// heldTemplates is what a Bundle still has in clusters that are waited for.
type heldTemplates struct {
	// items of the latest content, and whether the order that all go is out.
	items       map[string]bool
	allRemoving bool
	tombstones  map[string]bool
	// waited counts the rows that are waited for, confirmed those of them that have
	// carried out a tombstone.
	waited    int
	confirmed map[string]int
}

func (s *bundleSnapshot) heldItems() *heldTemplates {
	h := &heldTemplates{items: map[string]bool{}, tombstones: map[string]bool{}, confirmed: map[string]int{}, allRemoving: s.isDeletionOrderedEverywhere()}
	if s.content == nil {
		return h
	}
	for i := range s.content.Items {
		h.items[s.content.Items[i].Key.String()+" "+s.content.Items[i].UID] = true
	}
	for _, t := range s.content.Tombstones {
		h.tombstones[t.ID()] = true
	}
	latest := s.revisions[len(s.revisions)-1].Name
	for _, row := range s.rows {
		if !row.Waited || row.isRemoved() {
			continue
		}
		h.waited += int(row.rowCount())
		for _, t := range s.content.Tombstones {
			if t.IsDoneInRow(latest, row.Spec, row.Status) {
				h.confirmed[t.ID()] += int(row.rowCount())
			}
		}
	}
	return h
}

// isTemplateHeld reports whether the Bundle still has the template in a cluster that is waited
// for, or has not recorded yet that it is to go.
func (h *heldTemplates) isTemplateHeld(key atoll.ItemKey, uid string) bool {
	id := key.String() + " " + uid
	switch {
	case h.tombstones[id]:
		return h.confirmed[id] < h.waited
	case h.items[id]:
		return !h.allRemoving || h.waited > 0
	}
	return false
}

// releaseUnheldTemplate takes the finalizer off a template that no Bundle holds, once it is
// certain that none does.
func (r *BundleReconciler) releaseUnheldTemplate(ctx context.Context, key atoll.ItemKey) (again time.Duration, err error) {
	t, ok := r.Templates.Get(key)
	if _, holding := r.Hub.HoldReason(); !ok || !isDeletionHeldByAtoll(t) || holding {
		return 0, nil
	}
	if len(r.index.templateHolders(key)) > 0 {
		return 0, nil // its Bundles' turn
	}
	if left := unheldAfter - time.Since(t.GetDeletionTimestamp().Time); left > 0 {
		return left, nil
	}
	if !r.index.allReconciled() {
		return settle, nil
	}
	if err := r.Writer.RemoveFinalizer(ctx, t, atoll.Finalizer); err != nil {
		return 0, fmt.Errorf("release template %s: %w", key, err)
	}
	return 0, nil
}

// releaseBundle removes the finalizer of a deleted Bundle, once every row has its removal order
// and every awaited cluster has confirmed. Items in disconnected clusters stay in the slices.
func (r *BundleReconciler) releaseBundle(ctx context.Context, s *bundleSnapshot, m *bundleMemo) (waits bool, err error) {
	if !s.alive || s.bundle.Meta.DeletionTimestamp == nil || !slices.Contains(s.bundle.Meta.Finalizers, atoll.FinalizerBundle) {
		return false, nil
	}
	if !s.isDeletionOrderedEverywhere() || slices.ContainsFunc(s.rows, func(r Row) bool { return r.Waited && !r.isRemoved() }) {
		return true, nil
	}
	if left := rowlessAfter - time.Since(s.bundle.Meta.DeletionTimestamp.Time); len(s.rows) == 0 && left > 0 {
		m.wakeAfter(left)
		return true, nil
	}
	if err := r.Writer.RemoveFinalizer(ctx, s.bundle.ToObject(), atoll.FinalizerBundle); err != nil {
		return true, fmt.Errorf("release bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
	}
	return false, nil
}

// collectGarbage deletes objects that are no longer needed.
func (r *BundleReconciler) collectGarbage(ctx context.Context, s *bundleSnapshot, m *bundleMemo) error {
	return errors.Join(r.orderDeletedNamespaceRemoval(ctx, s), r.deleteFinishedRows(ctx, s, m), r.deleteEmptySlices(ctx, s), r.deleteOldRevisions(ctx, s))
}

// deleteFinishedRows takes away rows whose removal is confirmed, and those whose Bundle and
// Cluster are both gone. Rows of one removal go in one write.
func (r *BundleReconciler) deleteFinishedRows(ctx context.Context, s *bundleSnapshot, m *bundleMemo) error {
	if !s.isFinishedRowCollectionDue(m) {
		return nil
	}
	over := r.listRowsOf(s.uid, s.isRowFinished)
	gone, removed := map[string]*atoll.RowSpec{}, []Row(nil)
	for _, row := range over {
		if gone[row.Cluster] = nil; row.isRemoved() {
			removed = append(removed, row)
			continue
		}
		r.Log.Warn("a cluster was given up: what it holds of a deleted bundle is left behind there",
			"cluster", row.Cluster, "uid", row.Spec.UID, "bundle", row.Bundle.Name, "namespace", row.Bundle.Namespace)
	}
	again, err := r.writeVacantRows(ctx, removed)
	if err != nil {
		return err
	}
	maps.Copy(gone, again)
	if err := r.RowSlices.WriteSpecs(ctx, s.rows[0].Bundle, plainRows(over), gone); err != nil {
		return fmt.Errorf("collect removed rows: %w", err)
	}
	r.warnOfKeptNamespace(removed)
	return nil
}

// warnOfKeptNamespace reports which clusters keep the namespace of removed rows, which a user deleted on the hub, and for
// which objects. The Event is about the Namespace: Events in the namespace go with it.
func (r *BundleReconciler) warnOfKeptNamespace(removed []Row) {
	kept := refusers{more: -1}
	for _, row := range removed {
		if row.Bundle.Namespace == "" || row.Status.Message == "" {
			continue
		}
		if kept.cluster == "" {
			kept.cluster, kept.message = row.Cluster, row.Status.Message
		}
		kept.more += int(row.rowCount())
	}
	if kept.cluster != "" {
		r.Events.RecordRefusal(atoll.NamespaceKey(removed[0].Bundle.Namespace), atoll.ReasonForeignObjects, kept.refusersText())
	}
}

// isFinishedRowCollectionDue reports whether finished rows are to be taken away now. They wait up to
// collectAfter for rows that are still being removed.
func (s *bundleSnapshot) isFinishedRowCollectionDue(m *bundleMemo) bool {
	pending, finished := false, false
	for _, row := range s.rows {
		over := s.isRowFinished(row)
		finished, pending = finished || over, pending || !over && row.Spec.Phase == atoll.RowRemoving && row.Reachable
	}
	if now := time.Now(); finished && pending {
		if m.collecting.IsZero() {
			m.collecting = now
		}
		if left := m.collecting.Add(collectAfter).Sub(now); left > 0 {
			m.wakeAfter(left)
			return false
		}
	}
	m.collecting = time.Time{}
	return finished
}

// isRowFinished reports whether a row is to be deleted: its removal is done, or Bundle and Cluster
// are both gone.
func (s *bundleSnapshot) isRowFinished(row Row) bool {
	return row.isRemoved() && row.Spec.Recall == nil || !s.alive && !row.Known
}

// deleteEmptySlices deletes slices without rows; a living Bundle keeps one.
func (r *BundleReconciler) deleteEmptySlices(ctx context.Context, s *bundleSnapshot) error {
	left := s.slices
	for _, slice := range slices.Backward(s.unused) {
		if left == 1 && !s.isDeleting() {
			continue
		}
		if err := r.Writer.DeleteSlice(ctx, slice); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("collect target slice %s: %w", slice.Name, err)
		}
		left--
	}
	return nil
}

// deleteOldRevisions deletes Revisions that are past the history and that no row
// names, and all of them when Bundle and rows are gone.
func (r *BundleReconciler) deleteOldRevisions(ctx context.Context, s *bundleSnapshot) error {
	if !s.alive && len(s.rows) == 0 {
		if len(s.revisions) == 0 {
			return nil
		}
		return r.Revisions.DropAll(ctx, s.uid)
	}
	if len(s.revisions) <= history {
		return nil
	}
	named := map[string]bool{}
	for _, row := range s.rows {
		named[row.Spec.Revision], named[row.Spec.PreviousRevision] = true, true
	}
	var old []*enginev1.Revision
	for _, rev := range s.revisions[:len(s.revisions)-history] {
		if !named[rev.Name] {
			old = append(old, rev)
		}
	}
	return r.Revisions.DropRevisions(ctx, old)
}
