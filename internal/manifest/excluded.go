package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// AbsentItems returns the items, by key, that a row does not have because rules exclude them from
// its cluster. A divided item is absent once its share is 0. An item whose removal waits for a
// confirmation is not absent.
func AbsentItems(content *atoll.Content, in RenderInput) []atoll.ItemKey {
	kept := excludingRules(content, in.Rules)
	return filterItemKeys(content, func(item *atoll.Item) bool { return kept[item.Key] != nil && in.isAbsent(item) })
}

// ExcludedItems returns the items, by key, that rules exclude from a cluster which they target,
// whatever a row there still has. A divided item is excluded only if the placement lets overrides
// set its replicas.
func ExcludedItems(content *atoll.Content, rules []int) []atoll.ItemKey {
	kept := excludingRules(content, rules)
	return filterItemKeys(content, func(item *atoll.Item) bool { return kept[item.Key] != nil })
}

// ExcludedItems returns the items that rules exclude from the cluster. It is computed once for each
// variant.
func (t *VariantCache) ExcludedItems(c atoll.ClusterView) []atoll.ItemKey {
	variant := t.VariantOf(c)
	out, known := t.excluded[variant]
	if !known {
		out = ExcludedItems(t.renderer.content, decodeRuleKey(t.key))
		t.excluded[variant] = out
	}
	return out
}

func filterItemKeys(content *atoll.Content, which func(*atoll.Item) bool) (out []atoll.ItemKey) {
	for i := range content.Items {
		if item := &content.Items[i]; which(item) {
			out = append(out, item.Key)
		}
	}
	slices.SortFunc(out, atoll.ItemKey.Compare)
	return out
}

// excludingRules returns the rules, by item, that exclude it. The last of several rules with
// notHere decides.
func excludingRules(content *atoll.Content, rules []int) map[atoll.ItemKey]*atoll.Rule {
	var out map[atoll.ItemKey]*atoll.Rule
	for _, i := range rules {
		r := &content.Rules[i]
		if r.Overriders.NotHere == nil {
			continue
		}
		if out == nil {
			out = map[atoll.ItemKey]*atoll.Rule{}
		}
		for _, key := range r.Items {
			switch {
			case !canExclude(r, key):
			case *r.Overriders.NotHere:
				out[key] = r
			default:
				delete(out, key)
			}
		}
	}
	for i := range content.Items {
		if item := &content.Items[i]; len(out) > 0 && item.Divided && !item.ReplicaOverrides {
			delete(out, item.Key)
		}
	}
	return out
}

// canExclude applies the check of admission to rules that were stored without it.
func canExclude(r *atoll.Rule, key atoll.ItemKey) bool {
	return strings.HasPrefix(r.Policy, "ClusterOverridePolicy/") || !overrides.RequiresClusterOverridePolicy(schema.GroupKind{Group: key.Group, Kind: key.Kind})
}

// isAbsent returns whether an excluded item is absent from the row.
func (in RenderInput) isAbsent(item *atoll.Item) bool {
	key := item.Key.String()
	if _, waits := in.ExcludedPending[key]; waits {
		return false
	}
	n, assigned := in.Assigned[key]
	return !item.Divided || assigned && n == 0
}
