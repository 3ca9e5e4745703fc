package fleet

import (
	"encoding/json"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ObjectsChecksum returns a small digest of the fields that people set in objects, to compare
// members with applied objects. It covers fields that neither defaults nor a hub change:
// the identity, the replicas, containers with images and environment, and the data of
// ConfigMaps and Secrets. The order of the objects does not count. Input that is no JSON
// object has the mark of an empty object.
func ObjectsChecksum(objects ...[]byte) (sum uint32) {
	for _, text := range objects {
		var object map[string]any
		_ = json.Unmarshal(text, &object) // the object stays empty on an error
		sum += objectChecksum(object)
	}
	return sum
}

func objectChecksum(object map[string]any) uint32 {
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
		return 0 // decoded JSON always encodes
	}
	h := fnv.New32a()
	h.Write(text)
	return h.Sum32()
}
