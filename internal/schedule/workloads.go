package schedule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// Handed: overrides may set a cluster's share.
	Handed bool
	// Requests of each of its pods.
	Requests atoll.Requests
}

// stateful workloads are not divided unless their ordinals are ranged: all of their
// replicas go to one cluster.
func (w Workload) stateful() bool { return w.Key.Group == "apps" && w.Key.Kind == "StatefulSet" }

// FixedPods that a content asks for in each cluster that has it: the replicas of its items
// that are not divided. Of pods that nodes decide on, as a DaemonSet's, and of kinds that
// are not Kubernetes' own, none are counted.
func FixedPods(content *atoll.Content) (n int64) {
	for i := range content.Items {
		item := &content.Items[i]
		if item.Divided {
			continue
		}
		var o struct {
			Spec struct {
				Replicas    *int64 `json:"replicas"`
				Parallelism *int64 `json:"parallelism"`
			} `json:"spec"`
		}
		one := int64(1)
		switch item.Key.Group + "/" + item.Key.Kind {
		case "/Pod":
		case "apps/Deployment", "apps/StatefulSet", "apps/ReplicaSet", "/ReplicationController", "batch/Job":
			// What is malformed is the member's to complain about.
			if utiljson.Unmarshal(item.Object, &o) == nil && o.Spec.Replicas != nil {
				one = *o.Spec.Replicas
			} else if o.Spec.Parallelism != nil {
				one = *o.Spec.Parallelism
			}
		default:
			continue
		}
		n += min(max(one, 0), MaxWeight)
	}
	return n
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
		if n, _, ok := interpret.Replicas(&unstructured.Unstructured{Object: obj}); ok {
			start, _, _ := unstructured.NestedInt64(obj, "spec", "ordinals", "start")
			out = append(out, Workload{Key: item.Key, Replicas: n, Handed: item.ReplicaOverrides, Start: max(start, 0), Requests: interpret.Requests(&unstructured.Unstructured{Object: obj})})
		}
	}
	slices.SortFunc(out, func(a, b Workload) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out, nil
}
