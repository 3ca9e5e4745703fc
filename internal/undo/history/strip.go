package history

import (
	"maps"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// serverFields of metadata are no content: the API server and controllers set them.
var serverFields = []string{
	"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "selfLink", "finalizers", "ownerReferences",
}

// ExtractContent returns what users state of an object: it has no status, and of its metadata nothing that
// the API server or a controller sets. It shares values with the object.
func ExtractContent(obj map[string]any) map[string]any {
	out := maps.Clone(obj)
	delete(out, "status")
	meta, ok := out["metadata"].(map[string]any)
	if !ok {
		return out
	}
	meta = maps.Clone(meta)
	for _, field := range serverFields {
		delete(meta, field)
	}
	out["metadata"] = meta
	return out
}

// jobLabels of the pods of a Job are set by the API server.
var jobLabels = []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}

// PrepareCreation returns the former content of a deleted object as it can be created again: it has no value
// that belonged to the object that is gone.
func PrepareCreation(content map[string]any) map[string]any {
	out := maps.Clone(content)
	spec, ok := out["spec"].(map[string]any)
	if !ok {
		return out
	}
	spec = maps.Clone(spec)
	out["spec"] = spec
	version, _ := out["apiVersion"].(string)
	switch kind := out["kind"]; {
	case kind == "Job" && strings.HasPrefix(version, "batch/") && spec["manualSelector"] != true:
		delete(spec, "selector")
		spec["template"] = withoutLabels(spec["template"], jobLabels)
	case kind == "Service" && version == "v1":
		if address, _ := spec["clusterIP"].(string); atoll.IsHubAssignedAddress(address) {
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
	}
	return out
}

// withoutLabels returns a pod template without some labels.
func withoutLabels(template any, labels []string) any {
	t, ok := template.(map[string]any)
	if !ok {
		return template
	}
	t = maps.Clone(t)
	meta, ok := t["metadata"].(map[string]any)
	if !ok {
		return t
	}
	meta = maps.Clone(meta)
	t["metadata"] = meta
	if had, ok := meta["labels"].(map[string]any); ok {
		had = maps.Clone(had)
		for _, l := range labels {
			delete(had, l)
		}
		meta["labels"] = had
	}
	return t
}
