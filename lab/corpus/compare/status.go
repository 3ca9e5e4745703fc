package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// summedLists are the lists of a status to which each cluster adds entries of its own: on the hub
// they are as long as in all clusters together.
var summedLists = map[string][]string{
	"Service": {"status.loadBalancer.ingress"},
	"Ingress": {"status.loadBalancer.ingress"},
}

// ignoredStatus are the fields of a status that name things of one cluster, by kind.
var ignoredStatus = map[string][]string{
	"StatefulSet": {"currentRevision", "updateRevision", "collisionCount"},
	"DaemonSet":   {"collisionCount"},
	"Deployment":  {"collisionCount"},
	"Pod":         {"podIP", "podIPs", "hostIP", "hostIPs", "containerStatuses", "initContainerStatuses"},
	"Job":         {"uncountedTerminatedPods"},
}

// ReadComparableStatus returns the fields of a status that are comparable between clusters, by their paths:
// conditions that are true, counts, phases, and whether the latest generation is observed. Times,
// messages and reasons are left out, and so are values of zero.
func ReadComparableStatus(live *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	status, _ := live.Object["status"].(map[string]any)
	reader := statusFlattener{kind: live.GetKind(), generation: live.GetGeneration(), out: out}
	reader.flattenMap("status", status)
	return out
}

type statusFlattener struct {
	kind       string
	generation int64
	out        map[string]string
}

func (r statusFlattener) flattenMap(path string, m map[string]any) {
	for key, v := range m {
		if isTimeReasonOrMessage(key) || path == "status" && slices.Contains(ignoredStatus[r.kind], key) {
			continue
		}
		r.flattenValue(joinPath(path, key), key, v)
	}
}

func (r statusFlattener) flattenValue(path, key string, v any) {
	switch x := v.(type) {
	case map[string]any:
		r.flattenMap(path, x)
	case []any:
		r.flattenList(path, key, x)
	default:
		if key == "observedGeneration" {
			r.addObservedGeneration(path, x)
			return
		}
		if text := formatField(normalizeNumber(x)); text != "" && text != "0" && text != "false" {
			r.out[path] = text
		}
	}
}

// addObservedGeneration reports whether the generation is the latest: clusters count generations on their
// own.
func (r statusFlattener) addObservedGeneration(path string, v any) {
	if n, ok := normalizeNumber(v).(int64); ok && n >= r.generation {
		r.out[path] = "latest"
	} else {
		r.out[path] = "behind"
	}
}

func (r statusFlattener) flattenList(path, key string, list []any) {
	switch {
	case len(list) == 0:
	case key == "conditions":
		for _, e := range list {
			if c, ok := e.(map[string]any); ok && c["status"] == "True" {
				r.out[fmt.Sprintf("%s[%v]", path, c["type"])] = "True"
			}
		}
	case slices.Contains(summedLists[r.kind], path):
		r.out[path] = strconv.Itoa(len(list))
	default:
		r.out[path] = formatValue(withoutIgnoredFields(list))
	}
}

// isTimeReasonOrMessage reports whether a field is a time or a text for people.
func isTimeReasonOrMessage(key string) bool {
	return key == "message" || key == "reason" || strings.HasSuffix(key, "Time") || strings.HasSuffix(key, "Timestamp")
}

// withoutIgnoredFields returns a copy of a value without times and texts for people.
func withoutIgnoredFields(v any) any {
	v = runtime.DeepCopyJSONValue(v)
	removeIgnoredFields(v)
	return v
}

func removeIgnoredFields(v any) {
	switch x := v.(type) {
	case map[string]any:
		for key, e := range x {
			if isTimeReasonOrMessage(key) {
				delete(x, key)
			} else {
				removeIgnoredFields(e)
			}
		}
	case []any:
		for _, e := range x {
			removeIgnoredFields(e)
		}
	}
}

// DiffStatuses returns the differences between the control's status and the hub's, of an object that runs
// in so many clusters.
func DiffStatuses(object string, control, hub *unstructured.Unstructured, clusters int) []Difference {
	want, got := ReadComparableStatus(control), ReadComparableStatus(hub)
	for _, path := range summedLists[control.GetKind()] {
		if n, err := strconv.Atoi(want[path]); err == nil {
			want[path] = strconv.Itoa(n * clusters)
		}
	}
	return diffTexts(Difference{Check: Status, Cluster: "hub", Object: object}, want, got)
}

// diffTexts returns the entries in which two maps differ, each as a copy of the pattern.
func diffTexts(pattern Difference, want, got map[string]string) (out []Difference) {
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		if want[path] != got[path] {
			d := pattern
			d.Path, d.Control, d.Atoll = path, want[path], got[path]
			out = append(out, d)
		}
	}
	return out
}

// comparableStatusText returns a canonical text of the comparable part of a status.
func comparableStatusText(live *unstructured.Unstructured) string {
	b, err := json.Marshal(ReadComparableStatus(live)) // maps of texts are always encodable
	if err != nil {
		return err.Error()
	}
	return string(b)
}
