package kinds

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/quantity"
)

// PodRequests returns what a pod requests, as a scheduler counts it. The amount is the sum of
// containers and sidecars, or the largest step of initialisation, plus the overhead. Requests of
// the pod as a whole replace it. CPU is in thousandths, other resources are in units.
func PodRequests(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	all, sidecars, peak := resourceAmounts{}, resourceAmounts{}, resourceAmounts{}
	for i := range spec.Containers {
		all.add(resourceAmountsOf(effectiveRequests(spec.Containers[i].Resources)))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		step := resourceAmountsOf(effectiveRequests(c.Resources))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.add(step)
			step = resourceAmounts{}
		}
		step.add(sidecars)
		peak.raiseTo(step)
	}
	all.add(sidecars)
	all.raiseTo(peak)
	if spec.Resources != nil {
		for name, n := range resourceAmountsOf(effectiveRequests(*spec.Resources)) {
			all[name] = n
		}
	}
	all.add(resourceAmountsOf(spec.Overhead))
	for name, n := range all {
		if n == 0 {
			delete(all, name)
		}
	}
	return all
}

// effectiveRequests returns the requests. A limit without a request counts as one, as in the
// API.
func effectiveRequests(r corev1.ResourceRequirements) corev1.ResourceList {
	if len(r.Limits) == 0 {
		return r.Requests
	}
	out := corev1.ResourceList{}
	for name, q := range r.Limits {
		out[name] = q
	}
	for name, q := range r.Requests {
		out[name] = q
	}
	return out
}

type resourceAmounts map[corev1.ResourceName]int64

func resourceAmountsOf(list corev1.ResourceList) resourceAmounts {
	out := make(resourceAmounts, len(list))
	for name, q := range list {
		if out[name] = quantity.WholeUnits(q); name == corev1.ResourceCPU {
			out[name] = quantity.MilliUnits(q)
		}
	}
	return out
}

func (a resourceAmounts) add(b resourceAmounts) {
	for name, n := range b {
		a[name] = quantity.AddCapped(a[name], n)
	}
}

// raiseTo raises each amount to at least that of b.
func (a resourceAmounts) raiseTo(b resourceAmounts) {
	for name, n := range b {
		a[name] = max(a[name], n)
	}
}

// IsExtraCapacityResource reports whether free capacity of nodes is compared by the resource besides
// CPU and memory: extended resources and huge pages. Storage on nodes is ignored.
func IsExtraCapacityResource(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
