package inventory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Bounds of what is kept of a member. In push mode the hub keeps it, and the member may be hostile. No
// cluster that Kubernetes supports comes near them.
const (
	maxNodes      = 15_000
	maxPods       = 200_000
	maxProperties = 1_000
	// maxNodeText bounds the names of a node and of its resources and taints, in bytes, maxPodText
	// those of a pod, and maxPropertyText the name and the value of a property.
	maxNodeText     = 4 << 10
	maxPodText      = 2 << 10
	maxPropertyText = 8 << 10
)

// mayKeepObject reports whether a further object may be kept: so many are, and its texts have so many bytes.
// An object that is left out is named in the snapshot until the kind is listed again. The caller holds
// mu.
func (i *Inventory) mayKeepObject(what string, kept, mostKept, text, mostText int) bool {
	switch {
	case text > mostText:
		i.excess[what] = fmt.Sprintf("some of the member's %s are not counted: their names have more than %d bytes", what, mostText)
	case kept >= mostKept:
		i.excess[what] = fmt.Sprintf("the member has more than %d %s, and the others are not counted", mostKept, what)
	default:
		return true
	}
	return false
}

// nodeTextSize returns how many bytes the kept texts of a node have.
func nodeTextSize(name string, n node) int {
	size := len(name) + len(n.provider) + len(n.region) + resourceNamesSize(n.allocatable)
	for _, t := range n.taints {
		size += len(t.Key) + len(t.Value) + len(t.Effect)
	}
	return size
}

// podTextSize returns how many bytes the kept texts of a pod have.
func podTextSize(p *corev1.Pod, requested resourceAmounts) int {
	return len(p.Namespace) + len(p.Name) + len(p.Spec.NodeName) + resourceNamesSize(requested)
}

func resourceNamesSize(a resourceAmounts) (size int) {
	for name := range a {
		size += len(name)
	}
	return size
}
