package schedule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/quantity"
)

// Workload is an item that states replicas.
type Workload struct {
	Key      atoll.ItemKey
	Replicas int64
	// Start is the first ordinal that a StatefulSet's template states.
	Start int64
	// OwnVolumes: it states volumes for each of its replicas, whatever its kind.
	OwnVolumes bool
	// HasReplicaOverrides: overrides may set a cluster's share.
	HasReplicaOverrides bool
	// Requests of each of its pods.
	Requests freecapacity.ReplicaRequests
}

// needsOneCluster reports whether all replicas go to one cluster, unless ordinals are ranged.
func (w Workload) needsOneCluster() bool {
	return w.OwnVolumes || kinds.NeedsOneCluster(schema.GroupKind{Group: w.Key.Group, Kind: w.Key.Kind})
}

// canRangeOrdinals reports whether the kind's ordinals can begin anywhere, so that clusters
// can have ranges of them: Kubernetes' own StatefulSets.
func (w Workload) canRangeOrdinals() bool {
	return w.Key.Group == "apps" && w.Key.Kind == "StatefulSet"
}

// HasExclusiveCopies reports whether two copies of a content should not run at one time, as in a move to
// another cluster: the content has a volume claim, or a StatefulSet or its like that goes to clusters as
// a whole. ranged is true where the placement divides ordinals.
func HasExclusiveCopies(content *atoll.Content, ranged bool) bool {
	return content != nil && slices.ContainsFunc(content.Items, func(item atoll.Item) bool {
		w := Workload{Key: item.Key, OwnVolumes: statesVolumesOfReplicas(&item)}
		isClaim := item.Key.Group == "" && item.Key.Kind == "PersistentVolumeClaim"
		return isClaim || w.needsOneCluster() && !(ranged && item.Divided && w.canRangeOrdinals())
	})
}

// statesVolumesOfReplicas reports whether each replica of the item has volumes of its own.
func statesVolumesOfReplicas(item *atoll.Item) bool {
	if !kinds.MayHaveVolumesOfReplicas(schema.GroupKind{Group: item.Key.Group, Kind: item.Key.Kind}) {
		return false
	}
	var obj map[string]any
	err := utiljson.Unmarshal(item.Object, &obj)
	return err == nil && kinds.NeedsOneClusterForVolumes(&unstructured.Unstructured{Object: obj})
}

// PodDemand is equal pods that an undivided item has in each cluster.
type PodDemand struct {
	Key atoll.ItemKey
	// Count of the pods, and what each of them requests.
	Count    int64
	Requests freecapacity.ReplicaRequests
}

// maxPodDemands bounds the sets of pods that are judged for each cluster.
const maxPodDemands = 32

// UndividedPodsOf returns the pods that a content creates in each cluster that has it, by its
// undivided items. It does not return pods whose number depends on nodes, as a DaemonSet's. If there are many sets of
// pods, the last one has the number of all others, and requests nothing.
func UndividedPodsOf(content *atoll.Content) (out []PodDemand) {
	for i := range content.Items {
		item := &content.Items[i]
		if item.Divided || !hasInterpretedPods(item) && !kinds.MayHavePods(schema.GroupKind{Group: item.Key.Group, Kind: item.Key.Kind}) {
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
			n := min(quantity.MultiplyCapped(times, s.Count), MaxWeight)
			switch s.Count = 1; {
			case n <= 0:
			case len(out) < maxPodDemands:
				out = append(out, PodDemand{item.Key, n, compileRequests(kinds.LargestPodRequests([]atoll.PodSet{s}))})
			case len(out) == maxPodDemands:
				out = append(out, PodDemand{Key: item.Key, Count: n})
			default:
				out[maxPodDemands].Count = quantity.AddCapped(out[maxPodDemands].Count, n)
			}
		}
	}
	return out
}

// CountUndividedPods returns the number of these pods.
func CountUndividedPods(demand []PodDemand) (n int64) {
	for i := range demand {
		n = quantity.AddCapped(n, demand[i].Count)
	}
	return n
}

// hasInterpretedPods reports whether a ResourceInterpreter set the pods of the item.
func hasInterpretedPods(item *atoll.Item) bool {
	return item.Interpreted != nil && (item.Interpreted.Replicas != nil || item.Interpreted.Pods != nil)
}

// PodsOf returns the pods of an item with this content: by its interpreter, or by the
// built-in kinds.
func PodsOf(item *atoll.Item, obj *unstructured.Unstructured) (n int64, each []atoll.PodSet) {
	if !hasInterpretedPods(item) {
		return kinds.PodSetsOf(obj)
	}
	if r := item.Interpreted.Replicas; r != nil {
		return *r, item.Interpreted.Pods
	}
	return 1, item.Interpreted.Pods
}

// ReplicasOf returns the replicas of an item that can be divided.
func ReplicasOf(item *atoll.Item, obj *unstructured.Unstructured) (n int64, ok bool) {
	if hasInterpretedPods(item) && item.Interpreted.Replicas != nil {
		return *item.Interpreted.Replicas, true
	}
	n, _, ok = kinds.ReplicasOf(obj)
	return n, ok
}

// WorkloadsOf returns the workloads of a content, by key: the items that are marked as
// divided and state replicas. It fails where such an item is no JSON object.
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
		w := Workload{Key: item.Key, Replicas: n, Start: max(start, 0), OwnVolumes: kinds.NeedsOneClusterForVolumes(u), HasReplicaOverrides: item.ReplicaOverrides}
		if w.Requests = kinds.ReplicaRequests(u); hasInterpretedPods(item) {
			w.Requests = kinds.LargestPodRequests(item.Interpreted.Pods)
		}
		w.Requests = compileRequests(w.Requests)
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out, nil
}
