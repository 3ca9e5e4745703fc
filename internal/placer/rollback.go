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
	targets, contents := manifest.NewVariantCache(target), map[string]*previousContent{}
	for i := range clusters {
		c := &clusters[i]
		name := previousRevisionOf(in, c.Name)
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
		in.Previous[c.Name] = prev.contentFor(c.ClusterView, targets)
	}
	return nil
}

// previousRevisionOf returns the revision that a row gets by the rollback, or a new copy; empty: none.
func previousRevisionOf(in *rollout.Input, cluster string) string {
	row, has := in.Rows[cluster]
	switch {
	case !has || row.Spec.Phase == atoll.RowPending:
		return in.Rollback.PreviousRevision
	case row.Spec.Revision != in.Revision:
		return ""
	}
	return row.Spec.PreviousRevision
}

// previousContent is the content of a revision to which rows return.
type previousContent struct {
	variants *manifest.VariantCache
	// blocker is why no row can return to it; empty: rows can.
	blocker string
}

// readPrevious reads the revision to which rows return from the target. A rollback takes no deletion back: a row that would get a
// deleted object again stays.
func (r *PlacementReconciler) readPrevious(ctx context.Context, name string, target *atoll.Content) (*previousContent, error) {
	content, err := r.Revisions.GetContent(ctx, name)
	if apierrors.IsNotFound(err) {
		return &previousContent{blocker: "its earlier revision is not kept any more"}, nil
	}
	if err != nil {
		return nil, err
	}
	out := &previousContent{variants: manifest.NewVariantCache(content)}
	for _, t := range target.Tombstones {
		if !slices.ContainsFunc(content.Tombstones, func(o atoll.Tombstone) bool { return o.ID() == t.ID() }) {
			out.blocker = "the change deletes objects, or hands them over"
		}
	}
	return out, nil
}

// contentFor returns what a cluster gets of it. A rollback removes nothing: a cluster in which override rules of the earlier revision
// exclude an object that it has stays.
func (p *previousContent) contentFor(c atoll.ClusterView, targets *manifest.VariantCache) (out rollout.PreviousContent) {
	if out.Blocker = p.blocker; out.Blocker != "" {
		return out
	}
	out.Variant = p.variants.VariantOf(c)
	absent := targets.ExcludedItems(c)
	for _, key := range p.variants.ExcludedItems(c) {
		if !slices.Contains(absent, key) {
			return rollout.PreviousContent{Blocker: "override rules of its earlier revision exclude objects that it has"}
		}
		out.Absent = append(out.Absent, key.String())
	}
	slices.Sort(out.Absent)
	return out
}
