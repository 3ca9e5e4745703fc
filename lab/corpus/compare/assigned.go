package compare

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// anyKey in a path stands for each entry of a map or a list.
const anyKey = "*"

// alwaysRemoved are fields of the server alone, also where a manifest states them.
var alwaysRemoved = [][]string{
	{"status"},
	{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"},
	{"metadata", "managedFields"}, {"metadata", "selfLink"}, {"metadata", "deletionTimestamp"}, {"metadata", "deletionGracePeriodSeconds"},
	{"metadata", "generateName"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
	{"metadata", "ownerReferences", anyKey, "uid"},
}

// assignedFields are the fields that the servers and controllers of each cluster assign, by kind. A
// field that the manifest states is kept.
var assignedFields = map[string][][]string{
	"Service": {
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "healthCheckNodePort"}, {"spec", "ports", anyKey, "nodePort"},
	},
	"PersistentVolumeClaim": {{"spec", "volumeName"}, {"metadata", "annotations", "volume.kubernetes.io/selected-node"}},
	"PersistentVolume":      {{"spec", "claimRef", "uid"}, {"spec", "claimRef", "resourceVersion"}},
	"Job": {
		{"spec", "selector", "matchLabels", "batch.kubernetes.io/controller-uid"},
		{"metadata", "labels", "controller-uid"}, {"metadata", "labels", "batch.kubernetes.io/controller-uid"},
		{"spec", "template", "metadata", "labels", "controller-uid"},
		{"spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"},
	},
	"Endpoints": {{"metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"}},
	"Pod": {
		{"spec", "nodeName"},
		{"metadata", "labels", "topology.kubernetes.io/zone"}, {"metadata", "labels", "topology.kubernetes.io/region"},
	},
	"HorizontalPodAutoscaler": {
		{"metadata", "annotations", "autoscaling.alpha.kubernetes.io/conditions"},
		{"metadata", "annotations", "autoscaling.alpha.kubernetes.io/current-metrics"},
	},
}

// tokenSecretType is the type of Secrets that the cluster's own authority fills.
const tokenSecretType = "kubernetes.io/service-account-token"

// tokenVolumePrefix begins the names of the volumes that the API server adds to pods.
const tokenVolumePrefix = "kube-api-access-"

// RemoveAssignedFields returns the content of a live object without the fields that its cluster assigned.
// manifest is the object as the user wrote it. Labels and annotations of Atoll are removed, too.
func RemoveAssignedFields(live, manifest *unstructured.Unstructured) map[string]any {
	out := runtime.DeepCopyJSON(live.Object)
	for _, path := range alwaysRemoved {
		removePath(out, path)
	}
	for _, path := range assignedFields[live.GetKind()] {
		if !hasPath(manifest.Object, path) {
			removePath(out, path)
		}
	}
	switch {
	case live.GetKind() == "Secret" && out["type"] == tokenSecretType:
		for _, key := range []string{"token", "ca.crt"} {
			removePath(out, []string{"data", key})
		}
		removePath(out, []string{"metadata", "annotations", "kubernetes.io/service-account.uid"})
	case live.GetKind() == "Pod":
		renameTokenVolumes(out)
	}
	removeAtollMetadata(out)
	return out
}

// removePath removes the field at a path, and reports nothing about a missing one.
func removePath(v any, path []string) {
	switch x := v.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(x, path[0])
			return
		}
		if path[0] == anyKey {
			for _, e := range x {
				removePath(e, path[1:])
			}
			return
		}
		removePath(x[path[0]], path[1:])
	case []any:
		if path[0] == anyKey && len(path) > 1 {
			for _, e := range x {
				removePath(e, path[1:])
			}
		}
	}
}

// hasPath reports whether the field at a path has a value other than null.
func hasPath(v any, path []string) bool {
	if len(path) == 0 {
		return v != nil
	}
	switch x := v.(type) {
	case map[string]any:
		return hasPath(x[path[0]], path[1:])
	case []any:
		return path[0] == anyKey && slices.ContainsFunc(x, func(e any) bool { return hasPath(e, path[1:]) })
	}
	return false
}

// removeAtollMetadata removes the labels and annotations of Atoll, and then maps and lists of the metadata
// that are empty.
func removeAtollMetadata(object map[string]any) {
	meta, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		values, ok := meta[field].(map[string]any)
		if !ok {
			continue
		}
		for key := range values {
			if domain, _, _ := strings.Cut(key, "/"); domain == "atoll.dev" || strings.HasSuffix(domain, ".atoll.dev") && domain != "lab.atoll.dev" {
				delete(values, key)
			}
		}
		if len(values) == 0 {
			delete(meta, field)
		}
	}
	for _, field := range []string{"finalizers", "ownerReferences"} {
		if list, ok := meta[field].([]any); ok && len(list) == 0 {
			delete(meta, field)
		}
	}
}

// renameTokenVolumes gives the volumes of the API server one name in all clusters.
func renameTokenVolumes(pod map[string]any) {
	rename := func(entries any) {
		list, _ := entries.([]any)
		for _, e := range list {
			m, _ := e.(map[string]any)
			if name, _ := m["name"].(string); strings.HasPrefix(name, tokenVolumePrefix) {
				m["name"] = tokenVolumePrefix + anyKey
			}
		}
	}
	spec, _ := pod["spec"].(map[string]any)
	rename(spec["volumes"])
	for _, field := range []string{"containers", "initContainers"} {
		list, _ := spec[field].([]any)
		for _, c := range list {
			m, _ := c.(map[string]any)
			rename(m["volumeMounts"])
		}
	}
}

// ReplaceName returns a value in which the generated name of an object, whole or as the begin of a
// text, is the placeholder.
func ReplaceName(v any, name, placeholder string) any {
	switch x := v.(type) {
	case string:
		return strings.ReplaceAll(x, name, placeholder)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = ReplaceName(e, name, placeholder)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = ReplaceName(e, name, placeholder)
		}
		return out
	}
	return v
}
