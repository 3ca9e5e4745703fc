package fleet

import (
	"encoding/json"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// MarkOf objects: a small digest of what people set in them, by which one can tell
// whether members hold what was applied. It takes what neither defaults nor a hub
// changes: which object it is, the replicas, the containers with their images and
// environment, and the data of ConfigMaps and Secrets. The order of the objects does
// not count. What is not a JSON object has the mark of an empty one.
func MarkOf(objects ...[]byte) (sum uint32) {
	for _, text := range objects {
		var object map[string]any
		_ = json.Unmarshal(text, &object) // an empty one then
		sum += markOf(object)
	}
	return sum
}

func markOf(object map[string]any) uint32 {
	set := map[string]any{}
	take := func(fields ...string) {
		if v, ok, _ := unstructured.NestedFieldNoCopy(object, fields...); ok {
			set[fields[len(fields)-1]] = v
		}
	}
	take("apiVersion")
	take("kind")
	take("metadata", "namespace")
	take("metadata", "name")
	take("spec", "replicas")
	take("data")
	take("binaryData")
	if all, ok, _ := unstructured.NestedFieldNoCopy(object, "spec", "template", "spec", "containers"); ok {
		list, _ := all.([]any)
		var kept []any
		for _, c := range list {
			container, _ := c.(map[string]any)
			kept = append(kept, []any{container["name"], container["image"], container["env"]})
		}
		set["containers"] = kept
	}
	text, err := json.Marshal(set)
	if err != nil {
		return 0 // what came of JSON becomes JSON
	}
	h := fnv.New32a()
	h.Write(text)
	return h.Sum32()
}
