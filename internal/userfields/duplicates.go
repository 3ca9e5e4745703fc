package userfields

import (
	"fmt"
	"slices"
)

// removeDuplicatePodElements keeps the last of elements with the same key, in the lists of a pod spec in which an
// API server accepts several. Server-side apply, by which members get the pod, accepts one. A container has
// the last of two variables of a name.
func removeDuplicatePodElements(spec map[string]any) {
	keepLastOfDuplicates(spec, "imagePullSecrets", "name")
	mergeHostAliases(spec)
	keepLastOfDuplicates(spec, "hostAliases", "ip")
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		all, _ := spec[list].([]any)
		for _, c := range all {
			if m, ok := c.(map[string]any); ok {
				keepLastOfDuplicates(m, "env", "name")
				keepLastOfDuplicates(m, "ports", "containerPort", "protocol")
			}
		}
	}
}

func keepLastOfDuplicates(m map[string]any, list string, key ...string) {
	l, ok := m[list].([]any)
	if !ok || len(l) < 2 {
		return
	}
	seen := map[string]bool{}
	kept := make([]any, 0, len(l))
	for _, e := range slices.Backward(l) {
		if id := elementKey(e, key); !seen[id] {
			seen[id] = true
			kept = append(kept, e)
		}
	}
	if len(kept) < len(l) {
		slices.Reverse(kept)
		m[list] = kept
	}
}

func elementKey(e any, key []string) string {
	m, _ := e.(map[string]any)
	id := ""
	for _, k := range key {
		id += fmt.Sprintf("%v ", m[k])
	}
	return id
}

// mergeHostAliases gives the last of the aliases with the same address the names of all, each of which a pod
// resolves.
func mergeHostAliases(spec map[string]any) {
	l, _ := spec["hostAliases"].([]any)
	names := map[string][]any{}
	for _, e := range l {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		own, _ := m["hostnames"].([]any)
		id := elementKey(m, []string{"ip"})
		if before := names[id]; len(before) > 0 {
			own = append(slices.Clone(before), own...)
			m["hostnames"] = own
		}
		names[id] = own
	}
}
