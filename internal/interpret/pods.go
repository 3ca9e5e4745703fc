package interpret

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// part says where an object states pods that are alike, or several sets of them.
type part struct {
	// name of the component; with list, of those elements that have none under key.
	name string
	// list of which each element states such pods; nil: the object itself does. The
	// other paths begin there.
	list path
	key  string
	// keyed: list is a map by the names of components.
	keyed bool
	// number of the pods; nil: one.
	number func(m map[string]any) int64
	// template of a pod, with its spec below, where it is not there that of or; and requests,
	// where pods are stated otherwise.
	template, or path
	requests     func(m map[string]any) amounts
}

// numberAt reads how many pods there are from a field.
func numberAt(dotted string, absent int64) func(map[string]any) int64 {
	p := at(dotted)
	return func(m map[string]any) int64 { return digCount(m, p, absent) }
}

// resourcesAt reads what a pod requests from resources as containers have them.
func resourcesAt(dotted string) func(map[string]any) amounts {
	p := at(dotted)
	return func(m map[string]any) amounts { return resourcesOf(digMap(m, p)) }
}

func resourcesOf(m map[string]any) amounts {
	var r corev1.ResourceRequirements
	if len(m) == 0 || atoll.EndlessQuantity(m) != "" || runtime.DefaultUnstructuredConverter.FromUnstructured(m, &r) != nil {
		return nil
	}
	return amountsOf(requestsOf(r))
}

// Pods that an object asks a cluster for, as far as it says: n times the sets in each, of
// which a replica is made, or the whole object where it has no replicas. None where the
// number is the member's to know, as a DaemonSet's is, or to make later, as those of a
// CronJob. Of a kind that is not known the pods of its first template are counted, where
// it states spec.replicas.
func Pods(obj *unstructured.Unstructured) (n int64, each []atoll.PodSet) {
	k := known(obj)
	switch stated, ok := number(spec(obj), "replicas"); {
	case k.replicas != nil:
		n = digCount(obj.Object, k.replicas, 1)
	case k.pods != nil:
		n = 1
	case ok && len(PodTemplates(obj)) > 0:
		n = stated
	default:
		return 0, nil
	}
	return max(n, 0), podSets(obj)
}

// MayHavePods is false for kinds of which Pods finds none in any object.
func MayHavePods(gk schema.GroupKind) bool {
	k := of(gk)
	return k.pods != nil || k.generic || k == silentKind
}

// podSets of one replica, or of the whole object.
func podSets(obj *unstructured.Unstructured) []atoll.PodSet {
	k := known(obj)
	if k.pods == nil {
		spec, _ := firstPod(obj)
		return []atoll.PodSet{{Count: 1, Requests: PodRequests(&spec), Tolerations: spec.Tolerations}}
	}
	var out []atoll.PodSet
	for i := range k.pods {
		out = k.pods[i].sets(obj.Object, out)
	}
	return out
}

// sets appends what the part says of an object.
func (p *part) sets(obj map[string]any, out []atoll.PodSet) []atoll.PodSet {
	switch l := dig(obj, p.list).(type) {
	case map[string]any:
		if !p.keyed {
			return p.set(l, p.name, out)
		}
		for _, name := range sortedKeys(l) {
			if m, ok := l[name].(map[string]any); ok {
				out = p.set(m, name, out)
			}
		}
	case []any:
		for _, e := range l {
			if m, ok := e.(map[string]any); ok {
				out = p.set(m, orElse(text(m, p.key), p.name), out)
			}
		}
	}
	return out
}

func (p *part) set(m map[string]any, name string, out []atoll.PodSet) []atoll.PodSet {
	s := atoll.PodSet{Name: name, Count: 1}
	if p.number != nil {
		s.Count = p.number(m)
	}
	if s.Count <= 0 {
		return out
	}
	if p.requests != nil {
		s.Requests = p.requests(m)
	}
	for _, template := range []path{p.or, p.template} {
		if template == nil {
			continue
		}
		if spec, ok := podSpecOf(child(digMap(m, template), "spec")); ok {
			s.Requests, s.Tolerations = PodRequests(&spec), spec.Tolerations
		}
	}
	return append(out, s)
}

func podSpecOf(m map[string]any) (spec corev1.PodSpec, ok bool) {
	if m == nil || atoll.EndlessQuantity(m) != "" {
		return spec, false
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &spec)
	return spec, err == nil
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
	return podSpecOf(m)
}

// Components of an object that has several, or that names them: each with all of its pods.
// None of a kind whose pods are all alike.
func Components(obj *unstructured.Unstructured) []atoll.PodSet {
	n, each := Pods(obj)
	if n == 0 || len(each) == 1 && each[0].Name == "" {
		return nil
	}
	for i := range each {
		each[i].Count = atoll.Times(each[i].Count, n)
	}
	return each
}

// Requests of one of the object's replicas. One that is made of several pods is taken for
// so many alike, each of which asks for the most that one of them does; they tolerate what
// all of them do. Zero where the object has no pods, or such as cannot be read.
func Requests(obj *unstructured.Unstructured) atoll.Requests { return RequestsOf(podSets(obj)) }

// RequestsOf is what a replica that is made of these pods requests, as in Requests.
func RequestsOf(sets []atoll.PodSet) (r atoll.Requests) {
	all := amounts{}
	for i := range sets {
		s := &sets[i]
		all.raise(s.Requests)
		if r.Pods = atoll.Plus(r.Pods, s.Count); i == 0 {
			r.Tolerations = s.Tolerations
		} else {
			r.Tolerations = both(r.Tolerations, s.Tolerations)
		}
	}
	if r.Pods <= 1 {
		r.Pods = 0
	}
	for name, n := range all {
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
	return r
}

// both keeps of tolerations those that others has too.
func both(of, others []corev1.Toleration) (out []corev1.Toleration) {
	for i := range of {
		for j := range others {
			if of[i].MatchToleration(&others[j]) {
				out = append(out, of[i])
				break
			}
		}
	}
	return out
}
