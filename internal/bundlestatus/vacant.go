package bundlestatus

import (
	"context"
	"fmt"
	"slices"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// An agent makes a namespace when something placed needs it, and removes it by the
// hub namespace's tombstone only. When the last that was placed goes before the
// namespace does, no Bundle's row is left to carry that tombstone: Vacant rows, in slices under the
// namespace's own UID, record where to send it.

// writeVacantRows stores where the namespace of removed rows stays. A row whose namespace was
// deleted since is ordered again instead: again returns those, which are not to be collected yet.
func (r *BundleReconciler) writeVacantRows(ctx context.Context, removed []Row) (again map[string]*atoll.RowSpec, err error) {
	changes, base := map[string]*atoll.RowSpec{}, []state.Row(nil)
	var ref enginev1.BundleRef
	for _, row := range removed {
		if !row.Status.NamespaceKept || !row.Known {
			continue
		}
		ns, ok := r.Namespaces.Get(row.Bundle.Namespace)
		if !ok || ns.DeletionTimestamp != nil {
			if again == nil {
				again = map[string]*atoll.RowSpec{}
			}
			again[row.Cluster] = r.reissueRemoval(row.Spec, row.Spec.Reason)
			continue
		}
		if ref.UID == "" {
			ref = enginev1.BundleRef{Namespace: ns.Name, UID: string(ns.UID)}
		}
		old, had := r.Rows.Get(ref.UID, row.Cluster)
		if had {
			base = append(base, old)
		}
		if spec := vacantRow(old, had, row); spec != nil {
			changes[row.Cluster] = spec
		}
	}
	if err := r.RowSlices.WriteSpecs(ctx, ref, base, changes); err != nil {
		return nil, fmt.Errorf("store where namespace %s stays: %w", ref.Namespace, err)
	}
	return again, nil
}

// vacantRow returns the vacant row for the cluster of a removed row; nil where there is one. old is what the
// cluster of that name had, if it had one.
func vacantRow(old state.Row, had bool, removed Row) *atoll.RowSpec {
	spec := &atoll.RowSpec{UID: removed.Spec.UID, Generation: 1, Phase: atoll.RowVacant, Since: time.Now().Unix()}
	if had && old.Spec.UID == spec.UID {
		return nil
	}
	if had {
		spec.Generation = old.Spec.Generation + 1
	}
	return spec
}

// reissueRemoval orders a removal once more.
func (r *BundleReconciler) reissueRemoval(spec atoll.RowSpec, reason string) *atoll.RowSpec {
	spec.Generation = max(spec.Generation, r.Hub.GenerationFloor()) + 1
	spec.Phase, spec.Reason, spec.Since = atoll.RowRemoving, reason, time.Now().Unix()
	return &spec
}

// orderDeletedNamespaceRemoval turns the Vacant rows of a namespace that was deleted.
func (r *BundleReconciler) orderDeletedNamespaceRemoval(ctx context.Context, s *bundleSnapshot) error {
	if !s.isVacantNamespace() {
		return nil
	}
	vacant := func(row Row) bool { return row.Spec.Phase == atoll.RowVacant }
	if !slices.ContainsFunc(s.rows, vacant) {
		return nil
	}
	ref := s.rows[0].Bundle
	if ns, ok := r.Namespaces.Get(ref.Namespace); !ok || string(ns.UID) != ref.UID {
		// An absence in a table is not yet a user's act.
		if exists, err := r.Writer.NamespaceExists(ctx, ref.Namespace, ref.UID); exists || err != nil {
			return err
		}
	} else if ns.DeletionTimestamp == nil {
		return nil
	}
	all, changes := r.listRowsOf(s.uid, vacant), map[string]*atoll.RowSpec{}
	for _, row := range all {
		changes[row.Cluster] = r.reissueRemoval(row.Spec, string(atoll.ReasonBundleDeleted))
	}
	if err := r.RowSlices.WriteSpecs(ctx, ref, plainRows(all), changes); err != nil {
		return fmt.Errorf("order the removal of namespace %s: %w", ref.Namespace, err)
	}
	return nil
}

// isVacantNamespace reports whether the rows are no Bundle's, but where a namespace stays.
func (s *bundleSnapshot) isVacantNamespace() bool {
	return len(s.rows) > 0 && s.rows[0].Bundle.IsNamespaceRef()
}
