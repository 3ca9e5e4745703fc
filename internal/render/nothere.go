package render

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// NotHere lists the items, by key, that a row does not have since the rules keep them out
// of its cluster. An item whose replicas are divided is out once its share is 0; one whose
// removal waits for a confirmation is not.
func NotHere(content *atoll.Content, in Input) []atoll.ItemKey {
	kept := unwanted(content, in.Rules)
	return keys(content, func(item *atoll.Item) bool { return kept[item.Key] != nil && in.out(item) })
}

// Unwanted lists the items, by key, that rules keep out of a cluster which they target,
// whatever a row there has of them yet. Where replicas are divided that is so only if the
// placement lets overrides set them: else it said who has them.
func Unwanted(content *atoll.Content, rules []int) []atoll.ItemKey {
	kept := unwanted(content, rules)
	return keys(content, func(item *atoll.Item) bool { return kept[item.Key] != nil })
}

// Unwanted gives what Unwanted gives for the cluster, worked out once for each variant.
func (t *Targets) Unwanted(c atoll.ClusterView) []atoll.ItemKey {
	variant := t.Variant(c)
	out, known := t.unwanted[variant]
	if !known {
		out = Unwanted(t.renderer.content, matchingOf(t.key))
		t.unwanted[variant] = out
	}
	return out
}

func keys(content *atoll.Content, which func(*atoll.Item) bool) (out []atoll.ItemKey) {
	for i := range content.Items {
		if item := &content.Items[i]; which(item) {
			out = append(out, item.Key)
		}
	}
	slices.SortFunc(out, atoll.ItemKey.Compare)
	return out
}

// unwanted gives the rules, by item, that keep it out: of those that say whether it is
// here the last decides.
func unwanted(content *atoll.Content, rules []int) map[atoll.ItemKey]*atoll.Rule {
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
			case !mayKeepOut(r, key):
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

// mayKeepOut holds what admission holds.
func mayKeepOut(r *atoll.Rule, key atoll.ItemKey) bool {
	return strings.HasPrefix(r.Policy, "ClusterOverridePolicy/") || !ClusterOnly(schema.GroupKind{Group: key.Group, Kind: key.Kind})
}

// out tells whether an item that is not wanted in the cluster is out of the row.
func (in Input) out(item *atoll.Item) bool {
	key := item.Key.String()
	if _, waits := in.NotYet[key]; waits {
		return false
	}
	n, assigned := in.Assigned[key]
	return !item.Divided || assigned && n == 0
}
