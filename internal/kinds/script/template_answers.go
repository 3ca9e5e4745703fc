package script

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// templateInterpreters are the interpreters that run when a template becomes an item; nil where
// there is none for an operation.
type templateInterpreters struct {
	replicas, components, dependencies *Customization
	hash                               string // of the interpreters; empty: there are none
}

func (x Interpreters) templateInterpretersOf(gvk schema.GroupVersionKind) templateInterpreters {
	t, by := templateInterpreters{x.findInterpreter(gvk, qReplicas), x.findInterpreter(gvk, qComponents), x.findInterpreter(gvk, qDependencies), ""}, ""
	for _, c := range []*Customization{t.replicas, t.components, t.dependencies} {
		if c != nil {
			by += c.name + " " + c.hash + "\n"
		}
	}
	if by != "" {
		t.hash = atoll.HashParts([]byte(by))
	}
	return t
}

// InterpretTemplate returns the answers about a template that becomes an item: replicas, their
// requirements, components, dependencies. The result is nil where no interpreter answers one of
// these questions.
func (x Interpreters) InterpretTemplate(t *unstructured.Unstructured) (*atoll.InterpreterAnswers, error) {
	if w := x.templateInterpretersOf(t.GroupVersionKind()); w.hash != "" {
		return w.answerTemplate(t)
	}
	return nil, nil
}

// The cache of answers about templates: their number, and the parts of each.
const (
	maxCachedAnswers = 4096
	maxCachedParts   = 32
)

// cachedAnswer is the answers about a template, or the error.
type cachedAnswer struct {
	interpreted *atoll.InterpreterAnswers
	err         error
}

// InterpretTemplate is InterpretTemplate of Interpreters with a cache. before is the last answer
// about the same template, and source is a fingerprint of its user-owned fields. A plan that
// creates no Revision stores nothing, so equal answers and errors of other interpreters are
// cached here.
func (l *Library) InterpretTemplate(t *unstructured.Unstructured, source string, before *atoll.InterpreterAnswers) (*atoll.InterpreterAnswers, error) {
	if l == nil {
		return nil, nil
	}
	w := l.templateInterpretersOf(t.GroupVersionKind())
	switch {
	case w.hash == "":
		return nil, nil
	case before != nil && before.AnsweredBy == w.hash:
		return before, nil
	}
	key := w.hash + " " + string(t.GetUID()) + " " + source
	if v, ok := l.cachedAnswers.Get(key); ok {
		known := v.(cachedAnswer)
		return known.interpreted, known.err
	}
	out, err := w.answerTemplate(t)
	if err != nil || len(out.Pods)+len(out.Dependencies)+len(out.Selections) <= maxCachedParts {
		l.cachedAnswers.Add(key, cachedAnswer{out, err})
	}
	return out, err
}

func (w templateInterpreters) answerTemplate(t *unstructured.Unstructured) (*atoll.InterpreterAnswers, error) {
	out, object := &atoll.InterpreterAnswers{AnsweredBy: w.hash}, t.Object
	if err := w.answerReplicasOrComponents(object, out); err != nil {
		return nil, err
	}
	if w.dependencies != nil {
		list, complete, err := w.dependencies.DependenciesOf(object)
		if err != nil {
			return nil, err
		}
		if out.Dependencies, out.Selections, err = resolveDependencies(list, t.GetNamespace()); err != nil {
			return nil, fmt.Errorf("%s %s: dependencies: %w", Kind, w.dependencies.name, err)
		}
		out.DependenciesComplete = complete
	}
	if b, err := json.Marshal(out); err != nil || len(b) > MaxInterpreted {
		return nil, fmt.Errorf("the interpreters' answers have %d bytes, and at most %d are kept: return fewer components and dependencies", len(b), MaxInterpreted)
	}
	return out, nil
}

// answerReplicasOrComponents requests replicas, or else for components.
func (w templateInterpreters) answerReplicasOrComponents(object map[string]any, out *atoll.InterpreterAnswers) error {
	if w.replicas != nil {
		r, _, err := w.replicas.ReplicasOf(object)
		if err != nil {
			return err
		}
		set, err := parsePodSet("", r.Requires)
		if err != nil {
			return fmt.Errorf("%s %s: replicas: %w", Kind, w.replicas.name, err)
		}
		set.Count = 1
		out.Replicas, out.Pods = &r.Count, []atoll.PodSet{set}
		return nil
	}
	if w.components == nil {
		return nil
	}
	list, _, err := w.components.ComponentsOf(object)
	if err != nil {
		return err
	}
	out.Pods = make([]atoll.PodSet, 0, len(list))
	for _, c := range list {
		set, err := parsePodSet(c.Name, c.Requires)
		if err != nil {
			return fmt.Errorf("%s %s: component %s: %w", Kind, w.components.name, c.Name, err)
		}
		set.Count = c.Count
		out.Pods = append(out.Pods, set)
	}
	return nil
}

// MaxInterpreted is the most bytes of JSON that the answers about one template can have: some
// 1,000 dependencies. Every Revision with the template stores the answers.
const MaxInterpreted = 128 << 10

// parsePodSet reads what each pod requires, in Karmada's terms.
func parsePodSet(name string, requires map[string]any) (atoll.PodSet, error) {
	out := atoll.PodSet{Name: name}
	requests, isObject := requires["resourceRequest"].(map[string]any)
	if requires["resourceRequest"] != nil && !isObject {
		return out, fmt.Errorf("resourceRequest is %s, and an object is needed", describeJSON(requires["resourceRequest"]))
	}
	for resource, v := range requests {
		q, err := quantity.Parse(fmt.Sprint(v))
		if err != nil {
			return out, fmt.Errorf("resourceRequest.%s is %s, and a quantity is needed", resource, describeJSON(v))
		}
		n := quantity.WholeUnits(q)
		if resource == string(corev1.ResourceCPU) {
			n = quantity.MilliUnits(q)
		}
		if n > 0 {
			if out.Requests == nil {
				out.Requests = map[corev1.ResourceName]int64{}
			}
			out.Requests[corev1.ResourceName(resource)] = n
		}
	}
	claim, _ := requires["nodeClaim"].(map[string]any)
	if claim["tolerations"] == nil {
		return out, nil
	}
	var pod corev1.PodSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"tolerations": claim["tolerations"]}, &pod); err != nil {
		return out, fmt.Errorf("nodeClaim.tolerations cannot be read: %w", err)
	}
	out.Tolerations = pod.Tolerations
	return out, nil
}
