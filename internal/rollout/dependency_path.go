package rollout

import (
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// FindDependencyPath returns the policies by which a policy depends on another one, over one or more steps; nil: it does not. The path ends
// with the other one, and begins with the first unless both are the same. dependsOn returns what a policy depends on, and is called once
// for each.
func FindDependencyPath(from, to v1alpha1.PolicyRef, dependsOn func(v1alpha1.PolicyRef) []v1alpha1.PolicyDependency) []v1alpha1.PolicyRef {
	queue, before := []v1alpha1.PolicyRef{from}, map[v1alpha1.PolicyRef]v1alpha1.PolicyRef{}
	for ; len(queue) > 0; queue = queue[1:] {
		list := dependsOn(queue[0])
		for i := range list {
			next := list[i].RefFrom(queue[0])
			if _, isSeen := before[next]; isSeen {
				continue
			}
			if before[next] = queue[0]; next == to {
				return traceDependencyPath(from, to, before)
			}
			queue = append(queue, next)
		}
	}
	return nil
}

// traceDependencyPath returns the path to a policy by the one before each.
func traceDependencyPath(from, to v1alpha1.PolicyRef, before map[v1alpha1.PolicyRef]v1alpha1.PolicyRef) []v1alpha1.PolicyRef {
	path := []v1alpha1.PolicyRef{to}
	for at := before[to]; at != from; at = before[at] {
		path = append(path, at)
	}
	if from != to {
		path = append(path, from)
	}
	slices.Reverse(path)
	return path
}
