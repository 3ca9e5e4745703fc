package interpret

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
)

// PodRequests of a pod as a scheduler counts them: the containers and sidecars
// together, or the largest step of initialisation, and the overhead; or what is stated
// of the whole pod. CPU in thousandths, everything else in units.
func PodRequests(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	all, sidecars, peak := amounts{}, amounts{}, amounts{}
	for i := range spec.Containers {
		all.add(amountsOf(requestsOf(spec.Containers[i].Resources)))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		step := amountsOf(requestsOf(c.Resources))
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.add(step)
			step = amounts{}
		}
		step.add(sidecars)
		peak.raise(step)
	}
	all.add(sidecars)
	all.raise(peak)
	if spec.Resources != nil {
		for name, n := range amountsOf(requestsOf(*spec.Resources)) {
			all[name] = n
		}
	}
	all.add(amountsOf(spec.Overhead))
	for name, n := range all {
		if n == 0 {
			delete(all, name)
		}
	}
	return all
}

// requestsOf what is stated: a limit without a request is one, as the API has it.
func requestsOf(r corev1.ResourceRequirements) corev1.ResourceList {
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

type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	out := make(amounts, len(list))
	for name, q := range list {
		if out[name] = atoll.Units(q); name == corev1.ResourceCPU {
			out[name] = atoll.Thousandths(q)
		}
	}
	return out
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] = atoll.Plus(a[name], n)
	}
}

// raise each amount to at least what b has.
func (a amounts) raise(b amounts) {
	for name, n := range b {
		a[name] = max(a[name], n)
	}
}

// Counted tells whether nodes are told apart by what they have left of a resource:
// by extended ones and huge pages, besides CPU and memory. What pods store on nodes is
// not looked at.
func Counted(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
