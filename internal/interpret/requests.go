package interpret

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		if out[name] = q.Value(); name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		}
	}
	return out
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
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

// Pods that an object asks a cluster for, as far as it says: its replicas, 1 for a Pod, a
// Job's parallelism; and what each of them requests, by resource as in PodRequests. None
// where the number is the member's to know, as a DaemonSet's is, or to make later, as
// those of a CronJob.
func Pods(obj *unstructured.Unstructured) (n int64, each map[corev1.ResourceName]int64) {
	gk := groupKind(obj)
	switch replicas, stated := number(spec(obj), "replicas"); {
	case replicated[gk]:
		n = countOr(spec(obj), "replicas", 1)
	case gk == schema.GroupKind{Kind: "Pod"}:
		n = 1
	case gk == schema.GroupKind{Group: "batch", Kind: "Job"}:
		n = countOr(spec(obj), "parallelism", 1)
		n = min(n, countOr(spec(obj), "completions", n))
	case stated && len(PodTemplates(obj)) > 0:
		n = replicas
	}
	if n <= 0 {
		return 0, nil
	}
	pod, ok := firstPod(obj)
	if !ok {
		return n, nil
	}
	return n, PodRequests(&pod)
}

// firstPod is the object's first pod template; not ok where it has none, or one that
// cannot be read.
func firstPod(obj *unstructured.Unstructured) (spec corev1.PodSpec, ok bool) {
	paths := PodTemplates(obj)
	if len(paths) == 0 {
		return spec, false
	}
	v, _ := Lookup(obj.Object, paths[0])
	m, _ := v.(map[string]any)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &spec)
	return spec, err == nil
}

// Requests of one pod of the object's first pod template; zero where it has none, or
// one that cannot be read.
func Requests(obj *unstructured.Unstructured) (r atoll.Requests) {
	spec, ok := firstPod(obj)
	if !ok {
		return r
	}
	for name, n := range PodRequests(&spec) {
		switch {
		case name == corev1.ResourceCPU:
			r.CPU = n
		case name == corev1.ResourceMemory:
			r.Memory = n
		case Counted(name):
			if r.Other == nil {
				r.Other = map[string]int64{}
			}
			r.Other[string(name)] = n
		}
	}
	r.Tolerations = spec.Tolerations
	return r
}
