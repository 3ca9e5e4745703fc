package manifest

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/overrides"
)

// RenderInput distinguishes one row's items from another row's.
type RenderInput struct {
	// Rules that MatchRules returned for the row's cluster.
	Rules []int
	// Cluster of the row, from which valueFrom takes values. Nil: there are no values.
	Cluster *atoll.ClusterView
	// Assigned replicas by item key, for items that are divided.
	Assigned map[string]int64
	// ExcludedPending holds, by key, the items that rules exclude from the cluster and that stay
	// until a user confirms the removal.
	ExcludedPending map[string]int64
	// Ordinals are where the ranges of StatefulSets begin, by item key, for those
	// whose ordinals are ranged.
	Ordinals map[string]int64

	clusterValues overrides.ClusterValues
}

// RenderItems returns the content's items as one member gets them, in the content's order, and
// which rule set which field. Held items and absent items (AbsentItems) are left out. An item to
// which a rule does not apply has an Error instead of an object; other items are unaffected.
func RenderItems(content *atoll.Content, in RenderInput) ([]atoll.RenderedItem, []overrides.Provenance) {
	return NewRenderer(content).RenderItems(in)
}

// failAllItems sets the error of an atomic rule that does not apply to one of the items.
func failAllItems(items []atoll.RenderedItem, r *atoll.Rule) []atoll.RenderedItem {
	for i := range items {
		if it := &items[i]; !it.Failed() {
			failItem(it, atoll.ReasonAtomicRuleFailed, fmt.Sprintf("%s rule %d, which is atomic, does not apply to another object of the Bundle", r.Policy, r.Index))
		}
	}
	return items
}

func withHash(r atoll.RenderedItem) atoll.RenderedItem {
	leave, err := json.Marshal(r.MemberOwned)
	if err != nil {
		panic(fmt.Sprintf("render: a list of strings has JSON: %v", err))
	}
	parts := [][]byte{r.Object, leave, []byte(r.Error)}
	if r.Observe != "" {
		parts = append(parts, []byte(r.Observe))
	}
	if r.ServiceAccount != "" {
		parts = append(parts, []byte("as "+r.ServiceAccount))
	}
	r.Hash = atoll.HashParts(parts...)
	return r
}

// findAutoscaled returns the objects whose replicas an autoscaler of the same content sets in each
// member.
func findAutoscaled(content *atoll.Content) map[atoll.ItemKey]bool {
	out := map[atoll.ItemKey]bool{}
	for _, item := range content.Items {
		if item.Key.Group != "autoscaling" || item.Key.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		hpa := unstructured.Unstructured{}
		if json.Unmarshal(item.Object, &hpa.Object) != nil {
			continue
		}
		if gk, name, ok := kinds.AutoscalerTarget(&hpa); ok {
			out[atoll.ItemKey{Group: gk.Group, Kind: gk.Kind, Namespace: item.Key.Namespace, Name: name}] = true
		}
	}
	return out
}

// memberOwnedReplicas returns the paths of fields that belong to the member. scripted is the path
// at which a script sets replicas; nil: none. The object keeps its initial replicas only where own
// is true: they are this cluster's.
func memberOwnedReplicas(obj map[string]any, scripted []string, own bool) []string {
	u := &unstructured.Unstructured{Object: obj}
	_, path, ok := kinds.ReplicasOf(u)
	if scripted != nil {
		path = scripted
	} else if !ok || kinds.IsCustomKind(u.GroupVersionKind().GroupKind()) {
		path = []string{"spec", "replicas"}
		if _, ok := kinds.LookupPath(obj, path); !ok {
			return nil
		}
	}
	if parent, ok := kinds.LookupPath(obj, path[:len(path)-1]); ok && !own {
		if m, ok := parent.(map[string]any); ok {
			delete(m, path[len(path)-1])
		}
	}
	return []string{jsonpointer.FormatPointer(path...)}
}
