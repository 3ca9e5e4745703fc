package script

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// teller are the interpreters that are asked about a template when it becomes an item; nil
// where nobody answers.
type teller struct {
	replicas, components, dependencies *Customization
	by                                 string // a hash of them; empty: there are none
}

func (x Interpreters) teller(gvk schema.GroupVersionKind) teller {
	t, by := teller{x.find(gvk, qReplicas), x.find(gvk, qComponents), x.find(gvk, qDependencies), ""}, ""
	for _, c := range []*Customization{t.replicas, t.components, t.dependencies} {
		if c != nil {
			by += c.name + " " + c.hash + "\n"
		}
	}
	if by != "" {
		t.by = atoll.Hash([]byte(by))
	}
	return t
}

// Interpret a template that becomes an item; nil where nothing is answered of what is asked
// then: replicas and what they need, components, dependencies.
func (x Interpreters) Interpret(t *unstructured.Unstructured) (*atoll.Interpreted, error) {
	if w := x.teller(t.GroupVersionKind()); w.by != "" {
		return w.ask(t)
	}
	return nil, nil
}

// What is remembered of answers about templates: so many, each of so many parts at most.
const (
	mostTold   = 4096
	mostToldOf = 32
)

// told of a template, or why nothing is.
type told struct {
	interpreted *atoll.Interpreted
	err         error
}

// Interpret as Interpreters do, without asking anew what was asked about the same. before is
// what was answered the last time, of the same template; source is a fingerprint of what users
// state in it. A plan that cuts no Revision stores nothing, so that what other interpreters
// answered equally, or failed to, is remembered here.
func (l *Library) Interpret(t *unstructured.Unstructured, source string, before *atoll.Interpreted) (*atoll.Interpreted, error) {
	if l == nil {
		return nil, nil
	}
	w := l.teller(t.GroupVersionKind())
	switch {
	case w.by == "":
		return nil, nil
	case before != nil && before.By == w.by:
		return before, nil
	}
	key := w.by + " " + string(t.GetUID()) + " " + source
	if v, ok := l.told.Get(key); ok {
		known := v.(told)
		return known.interpreted, known.err
	}
	out, err := w.ask(t)
	if err != nil || len(out.Pods)+len(out.Dependencies)+len(out.Selections) <= mostToldOf {
		l.told.Add(key, told{out, err})
	}
	return out, err
}

func (w teller) ask(t *unstructured.Unstructured) (*atoll.Interpreted, error) {
	out, object := &atoll.Interpreted{By: w.by}, t.Object
	if w.replicas != nil {
		r, _, err := w.replicas.Replicas(object)
		if err != nil {
			return nil, err
		}
		set, err := podSet("", r.Requires)
		if err != nil {
			return nil, fmt.Errorf("%s %s: replicas: %w", Kind, w.replicas.name, err)
		}
		set.Count = 1
		out.Replicas, out.Pods = &r.Count, []atoll.PodSet{set}
	} else if w.components != nil {
		list, _, err := w.components.Components(object)
		if err != nil {
			return nil, err
		}
		out.Pods = make([]atoll.PodSet, 0, len(list))
		for _, c := range list {
			set, err := podSet(c.Name, c.Requires)
			if err != nil {
				return nil, fmt.Errorf("%s %s: component %s: %w", Kind, w.components.name, c.Name, err)
			}
			set.Count = c.Count
			out.Pods = append(out.Pods, set)
		}
	}
	if w.dependencies != nil {
		list, told, err := w.dependencies.Dependencies(object)
		if err != nil {
			return nil, err
		}
		if out.Dependencies, out.Selections, err = followed(list, t.GetNamespace()); err != nil {
			return nil, fmt.Errorf("%s %s: dependencies: %w", Kind, w.dependencies.name, err)
		}
		out.Depends = told
	}
	if b, err := json.Marshal(out); err != nil || len(b) > MaxInterpreted {
		return nil, fmt.Errorf("what interpreters say of it has %d bytes, and at most %d are kept: let them tell fewer components and dependencies", len(b), MaxInterpreted)
	}
	return out, nil
}

// MaxInterpreted is how many bytes of JSON the answers about one template may have, which lie
// in every Revision that has it: some 1,000 dependencies.
const MaxInterpreted = 128 << 10

// podSet of what each pod needs, in Karmada's words.
func podSet(name string, requires map[string]any) (atoll.PodSet, error) {
	out := atoll.PodSet{Name: name}
	requests, isObject := requires["resourceRequest"].(map[string]any)
	if requires["resourceRequest"] != nil && !isObject {
		return out, fmt.Errorf("resourceRequest is %s, and an object is needed", kindOf(requires["resourceRequest"]))
	}
	for resource, v := range requests {
		q, err := atoll.ParseQuantity(fmt.Sprint(v))
		if err != nil {
			return out, fmt.Errorf("resourceRequest.%s is %s, and a quantity is needed", resource, kindOf(v))
		}
		n := atoll.Units(q)
		if resource == string(corev1.ResourceCPU) {
			n = atoll.Thousandths(q)
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
