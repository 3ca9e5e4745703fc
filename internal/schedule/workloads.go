package schedule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// Workload is an item that states replicas.
type Workload struct {
	Key      atoll.ItemKey
	Replicas int64
	// Start is the first ordinal that a StatefulSet's template states.
	Start int64
	// OwnVolumes: it states volumes for each of its replicas, whatever its kind.
	OwnVolumes bool
	// Handed: overrides may set a cluster's share.
	Handed bool
	// Requests of each of its pods.
	Requests atoll.Requests
}

// stateful workloads are not divided unless their ordinals are ranged: all of their
// replicas go to one cluster.
func (w Workload) stateful() bool {
	return w.OwnVolumes || interpret.Whole(schema.GroupKind{Group: w.Key.Group, Kind: w.Key.Kind})
}

// ranges tells whether the kind's ordinals can begin anywhere, so that clusters can have
// ranges of them: Kubernetes' own StatefulSets.
func (w Workload) ranges() bool { return w.Key.Group == "apps" && w.Key.Kind == "StatefulSet" }

// FixedPods that a content asks for in each cluster that has it: those of its items that
// are not divided, as interpret.Pods knows them. Of pods that nodes decide on, as a
// DaemonSet's, none are counted.
func FixedPods(content *atoll.Content) (n int64) {
	for i := range content.Items {
		item := &content.Items[i]
		if item.Divided || !interpreted(item) && !interpret.MayHavePods(schema.GroupKind{Group: item.Key.Group, Kind: item.Key.Kind}) {
			continue
		}
		var obj map[string]any
		if utiljson.Unmarshal(item.Object, &obj) != nil || obj == nil {
			continue // what is malformed is the member's to complain about
		}
		u := &unstructured.Unstructured{Object: obj}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: item.Key.Group, Version: "any", Kind: item.Key.Kind})
		times, sets := PodsOf(item, u)
		for _, s := range sets {
			n = atoll.Plus(n, min(atoll.Times(times, s.Count), MaxWeight))
		}
	}
	return n
}

// interpreted tells whether a ResourceInterpreter said which pods the item makes.
func interpreted(item *atoll.Item) bool {
	return item.Interpreted != nil && (item.Interpreted.Replicas != nil || item.Interpreted.Pods != nil)
}

// PodsOf an item, whose content is the object: as its interpreter said, or as interpret.Pods
// knows them.
func PodsOf(item *atoll.Item, obj *unstructured.Unstructured) (n int64, each []atoll.PodSet) {
	if !interpreted(item) {
		return interpret.Pods(obj)
	}
	if r := item.Interpreted.Replicas; r != nil {
		return *r, item.Interpreted.Pods
	}
	return 1, item.Interpreted.Pods
}

// ReplicasOf an item that can be shared out.
func ReplicasOf(item *atoll.Item, obj *unstructured.Unstructured) (n int64, ok bool) {
	if interpreted(item) && item.Interpreted.Replicas != nil {
		return *item.Interpreted.Replicas, true
	}
	n, _, ok = interpret.Replicas(obj)
	return n, ok
}

// WorkloadsOf a content, by key: the items that are marked as divided and state
// replicas.
func WorkloadsOf(content *atoll.Content) ([]Workload, error) {
	var out []Workload
	for i := range content.Items {
		item := &content.Items[i]
		if !item.Divided {
			continue
		}
		var obj map[string]any
		if err := utiljson.Unmarshal(item.Object, &obj); err != nil {
			return nil, fmt.Errorf("%s is not an object: %w", item.Key, err)
		}
		u := &unstructured.Unstructured{Object: obj}
		n, ok := ReplicasOf(item, u)
		if !ok {
			continue
		}
		start, _, _ := unstructured.NestedInt64(obj, "spec", "ordinals", "start")
		w := Workload{Key: item.Key, Replicas: n, Start: max(start, 0), OwnVolumes: interpret.OwnVolumes(u), Handed: item.ReplicaOverrides}
		if w.Requests = interpret.Requests(u); interpreted(item) {
			w.Requests = interpret.RequestsOf(item.Interpreted.Pods)
		}
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out, nil
}
