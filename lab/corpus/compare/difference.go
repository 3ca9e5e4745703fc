package compare

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Check is the question that a difference answers.
type Check string

// The checks of one manifest, in the order of their columns.
const (
	Accepted Check = "accepted" // the answers of kubectl to writes
	Objects  Check = "objects"  // the content of the objects in members
	Status   Check = "status"   // the statuses on the hub
	Answers  Check = "answers"  // the answers of kubectl to reads of the hub
	Clean    Check = "clean"    // the rest after kubectl delete
)

// Checks lists all checks.
var Checks = []Check{Accepted, Objects, Status, Answers, Clean}

// Paths of differences that are not about a field.
const (
	PathObject = "object" // an object is present in one cluster only
	PathLeft   = "left"   // an object stays behind
)

// Difference is one difference between the control and a cluster of the fleet.
type Difference struct {
	Check   Check  `json:"check"`
	Cluster string `json:"cluster"` // "hub" or a member
	// Object is "KIND NAMESPACE/NAME" or "KIND NAME"; empty for answers about several objects.
	Object string `json:"object,omitempty"`
	// Path is a field, or the name of an answer.
	Path string `json:"path"`
	// Control is the control's value, Atoll that of the cluster.
	Control string `json:"control"`
	Atoll   string `json:"atoll"`
	// Reason is the reason in the list of expected differences; empty for an unexpected one.
	Reason string `json:"reason,omitempty"`
}

// ObjectName returns the name of an object in differences.
func ObjectName(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// maxValueBytes bounds a value in a difference.
const maxValueBytes = 160

func formatValue(v any) string {
	if s, ok := v.(string); ok {
		return shortenValue(s)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return shortenValue(fmt.Sprint(v))
	}
	return shortenValue(string(b))
}

func shortenValue(s string) string {
	if len(s) <= maxValueBytes {
		return s
	}
	cut := maxValueBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + fmt.Sprintf("… (%d bytes)", len(s))
}

// DiffPresence returns the difference of an object that only one cluster has. both is true if both
// clusters have it.
func DiffPresence(check Check, cluster, object string, control, live *unstructured.Unstructured) (d []Difference, both bool) {
	const present, absent = "present", "absent"
	switch {
	case control != nil && live != nil:
		return nil, true
	case control != nil:
		return []Difference{{Check: check, Cluster: cluster, Object: object, Path: PathObject, Control: present, Atoll: absent}}, false
	case live != nil:
		return []Difference{{Check: check, Cluster: cluster, Object: object, Path: PathObject, Control: absent, Atoll: present}}, false
	}
	return nil, false
}
