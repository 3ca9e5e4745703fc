package placer

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// addRollback adds the stored rollback to a step, and what rows and new copies get by it.
func (r *PlacementReconciler) addRollback(ctx context.Context, s *stepInput, clusters []schedule.Cluster, target *atoll.Content) error {
	in := &s.rollout
	if in.Terms == nil || s.bundle.Status.Rollout == nil || s.bundle.Status.Rollout.Rollback == nil {
		return nil
	}
	if in.Rollback = s.bundle.Status.Rollout.Rollback; in.Rollback.Revision != in.Revision || target == nil {
		return nil
	}
	in.Previous = map[string]rollout.PreviousContent{}
	contents := map[string]*previousContent{}
	for i := range clusters {
		c := &clusters[i]
		name, row := previousRevisionOf(in, c.Name)
		if name == "" {
			continue
		}
		prev, known := contents[name]
		if !known {
			var err error
			if prev, err = r.readPrevious(ctx, name, target); err != nil {
				return fmt.Errorf("bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
			}
			contents[name] = prev
		}
		in.Previous[c.Name] = prev.contentFor(c.ClusterView, row)
	}
	return nil
}

// previousRevisionOf returns the revision that a row gets by the rollback, or a new copy; empty: none. The row is nil for
// a new copy, which has no objects yet.
func previousRevisionOf(in *rollout.Input, cluster string) (name string, of *atoll.RowSpec) {
	row, has := in.Rows[cluster]
	_, comes := in.NewClusters[cluster]
	switch {
	case has && !rollout.IsNewCopy(row.Spec) && row.Spec.Revision == in.Revision:
		return row.Spec.PreviousRevision, &row.Spec
	case comes || has && rollout.IsNewCopy(row.Spec):
		return in.Rollback.PreviousRevision, nil
	}
	return "", nil
}

// previousContent is the content of a revision to which rows return.
type previousContent struct {
	variants *manifest.VariantCache
	// blocker is why no row can return to it; empty: rows can.
	blocker string
}

// readPrevious reads the revision to which rows return from the target.
func (r *PlacementReconciler) readPrevious(ctx context.Context, name string, target *atoll.Content) (*previousContent, error) {
	content, err := r.Revisions.GetContent(ctx, name)
	if apierrors.IsNotFound(err) {
		return &previousContent{blocker: "its earlier revision is not kept any more"}, nil
	}
	if err != nil {
		return nil, err
	}
	return &previousContent{variants: manifest.NewVariantCache(content), blocker: findReturnBlocker(target, content)}, nil
}

// findReturnBlocker returns why no row can return from the target to an earlier content; empty: rows can. A return takes no deletion
// back, also one whose tombstone every row has confirmed, and deletes nothing that the target has again.
func findReturnBlocker(target, earlier *atoll.Content) string {
	uids, buried := make(map[atoll.ItemKey]string, len(target.Items)), make(map[string]bool, len(earlier.Tombstones))
	for i := range target.Items {
		uids[target.Items[i].Key] = target.Items[i].UID
	}
	for _, t := range earlier.Tombstones {
		if _, has := uids[t.Key]; has {
			return "its earlier revision deletes objects that the change has again, or hands them over"
		}
		buried[t.ID()] = true
	}
	isGone := func(item atoll.Item) bool { uid, has := uids[item.Key]; return !has || uid != item.UID }
	if slices.ContainsFunc(earlier.Items, isGone) || slices.ContainsFunc(target.Tombstones, func(t atoll.Tombstone) bool { return !buried[t.ID()] }) {
		return "the change deletes objects, or hands them over"
	}
	return ""
}

// contentFor returns what a cluster gets of it, of which the row is nil for a new copy. A rollback removes nothing: a cluster in
// which override rules of the earlier revision exclude an object that it has stays, also where the object waits for a confirmation.
func (p *previousContent) contentFor(c atoll.ClusterView, row *atoll.RowSpec) (out rollout.PreviousContent) {
	if out.Blocker = p.blocker; out.Blocker != "" {
		return out
	}
	out.Variant = p.variants.VariantOf(c)
	for _, key := range p.variants.ExcludedItems(c) {
		if row != nil && row.IncludesItem(key) {
			return rollout.PreviousContent{Blocker: "override rules of its earlier revision exclude objects that it has"}
		}
		out.Absent = append(out.Absent, key.String())
	}
	slices.Sort(out.Absent)
	return out
}
