package placer

import (
	"context"
	"fmt"
	"slices"

	"atoll.dev/atoll/internal/atoll"
)

// addDisruptionBudget adds the disruption budget of a Bundle to a step, and the revisions from which a change to the target takes no copy. A Bundle
// whose templates are all deleted has no budget.
func (r *PlacementReconciler) addDisruptionBudget(ctx context.Context, s *stepInput, content *atoll.Content) error {
	in := &s.rollout
	if s.bundle.Spec.DisruptionBudget == nil || content != nil && content.HoldsNothing() {
		return nil
	}
	if in.Budget = s.bundle.Spec.DisruptionBudget; content == nil {
		return nil
	}
	in.FreeRevisions = map[string]bool{}
	for _, row := range in.Rows {
		name := row.Spec.Revision
		if _, isKnown := in.FreeRevisions[name]; isKnown || name == in.Revision {
			continue
		}
		old, err := r.Revisions.GetContent(ctx, name)
		if err != nil {
			return fmt.Errorf("bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
		}
		in.FreeRevisions[name] = old.HoldsNothing() || len(in.DeletedItems[name]) > 0 && onlyDeletes(old, content)
	}
	return nil
}

// onlyDeletes reports whether a content has nothing that an earlier one has not, and hands no object over.
func onlyDeletes(earlier, target *atoll.Content) bool {
	old, stays := make(map[atoll.ItemKey]atoll.Item, len(earlier.Items)), make(map[atoll.ItemKey]bool, len(target.Items))
	for _, item := range earlier.Items {
		old[item.Key] = item
	}
	for _, item := range target.Items {
		was, has := old[item.Key]
		if was.SourceFingerprint = item.SourceFingerprint; !has || atoll.HashJSON(was) != atoll.HashJSON(item) {
			return false
		}
		stays[item.Key] = true
	}
	isHandedOver := func(t atoll.Tombstone) bool { return t.Cause == atoll.CauseMoved }
	return !slices.ContainsFunc(target.Tombstones, isHandedOver) && earlier.ConflictResolution == target.ConflictResolution && earlier.Removal == target.Removal &&
		atoll.HashJSON(earlier.Namespace) == atoll.HashJSON(target.Namespace) && atoll.HashJSON(rulesOfItems(earlier.Rules, stays)) == atoll.HashJSON(rulesOfItems(target.Rules, stays))
}

// rulesOfItems returns the rules as they are for some items.
func rulesOfItems(rules []atoll.Rule, items map[atoll.ItemKey]bool) (out []atoll.Rule) {
	for _, rule := range rules {
		rule.Items = slices.DeleteFunc(slices.Clone(rule.Items), func(key atoll.ItemKey) bool { return !items[key] })
		if len(rule.Items) > 0 {
			out = append(out, rule)
		}
	}
	return out
}
