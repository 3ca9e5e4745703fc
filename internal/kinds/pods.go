package kinds

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/quantity"
)

// podPart describes where an object states one set of equal pods, or several sets.
type podPart struct {
	// name of the set. With listPath it is the name of elements without one under nameKey.
	name string
	// listPath is a list whose elements each state a set; nil: the object states one set. The
	// other paths are relative to the element.
	listPath fieldPath
	nameKey  string
	// listIsMap: listPath is a map by the names of the sets.
	listIsMap bool
	// countPods returns the number of pods; nil: one.
	countPods func(m map[string]any) int64
	// templatePath of a pod template, which has the pod spec at spec. fallbackTemplatePath is
	// used where it is absent. readRequests is for sets that are stated in another form.
	templatePath, fallbackTemplatePath fieldPath
	readRequests                       func(m map[string]any) resourceAmounts
}

// podCountAt returns a function that reads the number of pods from a field.
func podCountAt(dotted string, absent int64) func(map[string]any) int64 {
	p := parsePath(dotted)
	return func(m map[string]any) int64 { return countAt(m, p, absent) }
}

// requestsAt returns a function that reads a pod's requests from resources in the form of
// containers.
func requestsAt(dotted string) func(map[string]any) resourceAmounts {
	p := parsePath(dotted)
	return func(m map[string]any) resourceAmounts { return parseRequests(mapAt(m, p)) }
}

func parseRequests(m map[string]any) resourceAmounts {
	var r corev1.ResourceRequirements
	if len(m) == 0 || quantity.FindSlowToParseQuantity(m) != "" || runtime.DefaultUnstructuredConverter.FromUnstructured(m, &r) != nil {
		return nil
	}
	return resourceAmountsOf(effectiveRequests(r))
}

// PodSetsOf returns the pods that an object requests: n times the sets in each. The sets make up
// one replica, or the whole object where it has no replicas. There are none where the member
// decides the number, as for a DaemonSet, or creates pods later, as for a CronJob. For an
// unknown kind with spec.replicas, the pods of its first template count.
func PodSetsOf(obj *unstructured.Unstructured) (n int64, each []atoll.PodSet) {
	k := traitsOf(obj)
	switch stated, ok := integerField(specOf(obj), "replicas"); {
	case k.replicasPath != nil:
		n = countAt(obj.Object, k.replicasPath, 1)
	case k.podParts != nil:
		n = 1
	case ok && len(PodSpecPaths(obj)) > 0:
		n = stated
	default:
		return 0, nil
	}
	return max(n, 0), replicaPodSets(obj)
}

// MayHavePods reports whether PodSetsOf can return pods for some object of the kind.
func MayHavePods(gk schema.GroupKind) bool {
	k := traitsOfKind(gk)
	return k.podParts != nil || k.usesGenericStatus || k == unlistedBuiltinKind
}

// replicaPodSets returns the pods of one replica, or of the whole object.
func replicaPodSets(obj *unstructured.Unstructured) []atoll.PodSet {
	k := traitsOf(obj)
	if k.podParts == nil {
		spec, _ := firstPodSpec(obj)
		one := atoll.PodSet{Count: 1}
		setPodRequirements(&one, &spec)
		return []atoll.PodSet{one}
	}
	var out []atoll.PodSet
	for i := range k.podParts {
		out = k.podParts[i].appendPodSets(obj.Object, out)
	}
	return out
}

// appendPodSets appends the sets of an object.
func (p *podPart) appendPodSets(obj map[string]any, out []atoll.PodSet) []atoll.PodSet {
	switch l := valueAt(obj, p.listPath).(type) {
	case map[string]any:
		if !p.listIsMap {
			return p.appendPodSet(l, p.name, out)
		}
		for _, name := range sortedKeys(l) {
			if m, ok := l[name].(map[string]any); ok {
				out = p.appendPodSet(m, name, out)
			}
		}
	case []any:
		for _, e := range l {
			if m, ok := e.(map[string]any); ok {
				out = p.appendPodSet(m, orElse(stringField(m, p.nameKey), p.name), out)
			}
		}
	}
	return out
}

func (p *podPart) appendPodSet(m map[string]any, name string, out []atoll.PodSet) []atoll.PodSet {
	s := atoll.PodSet{Name: name, Count: 1}
	if p.countPods != nil {
		s.Count = p.countPods(m)
	}
	if s.Count <= 0 {
		return out
	}
	if p.readRequests != nil {
		s.Requests = p.readRequests(m)
	}
	for _, template := range []fieldPath{p.fallbackTemplatePath, p.templatePath} {
		if template == nil {
			continue
		}
		if spec, ok := decodePodSpec(nestedMap(mapAt(m, template), "spec")); ok {
			setPodRequirements(&s, &spec)
		}
	}
	return append(out, s)
}

// setPodRequirements sets what each pod of the set requires.
func setPodRequirements(s *atoll.PodSet, spec *corev1.PodSpec) {
	s.Requests, s.Tolerations, s.NodeSelector = PodRequests(spec), spec.Tolerations, spec.NodeSelector
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		s.NodeAffinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
}

func decodePodSpec(m map[string]any) (spec corev1.PodSpec, ok bool) {
	if m == nil || quantity.FindSlowToParseQuantity(m) != "" {
		return spec, false
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &spec)
	return spec, err == nil
}

// firstPodSpec decodes the first pod template of the object; ok is false where it has none, or
// one that cannot be decoded.
func firstPodSpec(obj *unstructured.Unstructured) (spec corev1.PodSpec, ok bool) {
	paths := PodSpecPaths(obj)
	if len(paths) == 0 {
		return spec, false
	}
	v, _ := LookupPath(obj.Object, paths[0])
	m, _ := v.(map[string]any)
	return decodePodSpec(m)
}

// ComponentsOf returns the components of an object that has several, or that names them, each
// with its total number of pods. It returns none for a kind whose pods are all equal.
func ComponentsOf(obj *unstructured.Unstructured) []atoll.PodSet {
	n, each := PodSetsOf(obj)
	if n == 0 || len(each) == 1 && each[0].Name == "" {
		return nil
	}
	for i := range each {
		each[i].Count = quantity.MultiplyCapped(each[i].Count, n)
	}
	return each
}

// ReplicaRequests returns what one replica requests. A replica of several pods counts as that
// many equal pods: each requests the largest amount of any of them, and tolerates what all of
// them tolerate. Their node selectors and affinities count where all have the same. The result is zero where the object has no pods, or none that can be decoded.
func ReplicaRequests(obj *unstructured.Unstructured) freecapacity.ReplicaRequests {
	return LargestPodRequests(replicaPodSets(obj))
}

// LargestPodRequests returns what a replica of these pods requests; see ReplicaRequests.
func LargestPodRequests(sets []atoll.PodSet) (r freecapacity.ReplicaRequests) {
	all := resourceAmounts{}
	for i := range sets {
		s := &sets[i]
		all.raiseTo(s.Requests)
		if r.Pods = quantity.AddCapped(r.Pods, s.Count); i == 0 {
			r.Tolerations, r.NodeSelector, r.NodeAffinity = s.Tolerations, s.NodeSelector, s.NodeAffinity
			continue
		}
		r.Tolerations = commonTolerations(r.Tolerations, s.Tolerations)
		if !maps.Equal(s.NodeSelector, sets[0].NodeSelector) || !apiequality.Semantic.DeepEqual(s.NodeAffinity, sets[0].NodeAffinity) {
			r.NodeSelector, r.NodeAffinity = nil, nil
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
		case IsExtraCapacityResource(name):
			if r.Other == nil {
				r.Other = map[string]int64{}
			}
			r.Other[string(name)] = n
		}
	}
	return r
}

// commonTolerations returns the tolerations that are in both lists.
func commonTolerations(a, b []corev1.Toleration) (out []corev1.Toleration) {
	for i := range a {
		for j := range b {
			if a[i].MatchToleration(&b[j]) {
				out = append(out, a[i])
				break
			}
		}
	}
	return out
}
