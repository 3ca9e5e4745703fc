package script

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Asking is about one object: what is asked follows from what is given.
type Asking struct {
	// Object as it is wanted.
	Object map[string]any
	// Observed is the object as a member has it; nil: health and status are asked of Object.
	Observed map[string]any
	// Items are the statuses of many members, each {clusterName, status, ...}.
	Items []any
	// Replicas to revise the object to.
	Replicas *int64
	// Op asks one question alone, by the key of its answer; Karmada's names are known too.
	Op string
}

// karmadaOps by lower case.
var karmadaOps = map[string]question{
	"interpretreplica": qReplicas, "interpretcomponent": qComponents, "revisereplica": qRevise, "retain": qRetain,
	"interprethealth": qHealth, "interpretstatus": qStatus, "aggregatestatus": qAggregate, "interpretdependency": qDependencies,
}

// Question that an op names: the key of its answer.
func Question(op string) (string, error) {
	if _, ok := questions[question(op)]; ok {
		return op, nil
	}
	if q, ok := karmadaOps[strings.ToLower(op)]; ok {
		return string(q), nil
	}
	var names []string
	for q := range questions {
		names = append(names, string(q))
	}
	slices.Sort(names)
	return "", fmt.Errorf("there is no op %q: it is one of %s", op, strings.Join(names, ", "))
}

// Outcome is what scripts answer of what is asked, in their own words: by the keys replicas,
// requirements, components, revised, retained, health (status, message), status, aggregated
// and dependencies; each only where a script answers it, and by that script which hub and
// agents ask. The values are JSON's. An op that lacks what it is asked about is an error, and
// so is the first script that fails.
func (x Interpreters) Outcome(a Asking) (map[string]any, error) {
	only := ""
	if a.Op != "" {
		q, err := Question(a.Op)
		if err != nil {
			return nil, err
		}
		only = q
	}
	observed := a.Observed
	if observed == nil {
		observed = a.Object
	}
	out, gvk := map[string]any{}, (&unstructured.Unstructured{Object: a.Object}).GroupVersionKind()
	for _, step := range []struct {
		q     question
		lacks string // what is not given
		ask   func(c *Customization) (bool, error)
	}{
		{qReplicas, "", func(c *Customization) (bool, error) { return c.putReplicas(out, a.Object) }},
		{qComponents, "", func(c *Customization) (bool, error) { return c.putComponents(out, a.Object) }},
		{qRevise, lacking(a.Replicas == nil, "a number of replicas"), func(c *Customization) (bool, error) {
			v, ok, err := c.Revise(a.Object, *a.Replicas)
			return put(out, qRevise, v, ok, err)
		}},
		{qRetain, lacking(a.Observed == nil, "the observed object"), func(c *Customization) (bool, error) {
			v, ok, err := c.Retain(a.Object, a.Observed)
			return put(out, qRetain, v, ok, err)
		}},
		{qHealth, "", func(c *Customization) (bool, error) { return c.putHealth(out, observed) }},
		{qStatus, "", func(c *Customization) (bool, error) {
			v, ok, err := c.Reflect(observed)
			return put(out, qStatus, v, ok && v != nil, err)
		}},
		{qAggregate, lacking(a.Items == nil, "items"), func(c *Customization) (bool, error) {
			v, ok, err := c.Aggregate(a.Object, a.Items)
			return put(out, qAggregate, v, ok && v != nil, err)
		}},
		{qDependencies, "", func(c *Customization) (bool, error) { return c.putDependencies(out, a.Object) }},
	} {
		if only != "" && only != string(step.q) {
			continue
		}
		if step.lacks != "" {
			if only != "" {
				return nil, fmt.Errorf("%s needs %s", only, step.lacks)
			}
			continue
		}
		if c := x.find(gvk, step.q); c != nil {
			if _, err := step.ask(c); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func lacking(does bool, what string) string {
	if does {
		return what
	}
	return ""
}

func put(out map[string]any, q question, v any, ok bool, err error) (bool, error) {
	if ok && err == nil {
		out[string(q)] = v
	}
	return ok, err
}

func (c *Customization) putReplicas(out map[string]any, object map[string]any) (bool, error) {
	r, ok, err := c.Replicas(object)
	if ok && err == nil {
		out[string(qReplicas)] = r.Count
		if r.Requires != nil {
			out["requirements"] = r.Requires
		}
	}
	return ok, err
}

func (c *Customization) putComponents(out map[string]any, object map[string]any) (bool, error) {
	cs, ok, err := c.Components(object)
	list := make([]any, 0, len(cs))
	for _, one := range cs {
		m := map[string]any{"name": one.Name, "replicas": one.Count}
		if one.Requires != nil {
			m["requirements"] = one.Requires
		}
		list = append(list, m)
	}
	return put(out, qComponents, list, ok, err)
}

func (c *Customization) putHealth(out map[string]any, observed map[string]any) (bool, error) {
	h, ok, err := c.Health(observed)
	m := map[string]any{"status": h.Status}
	if h.Message != "" {
		m["message"] = h.Message
	}
	return put(out, qHealth, m, ok, err)
}

func (c *Customization) putDependencies(out map[string]any, object map[string]any) (bool, error) {
	ds, ok, err := c.Dependencies(object)
	list := make([]any, 0, len(ds))
	for _, d := range ds {
		m := map[string]any{"apiVersion": d.APIVersion, "kind": d.Kind}
		for field, v := range map[string]string{"namespace": d.Namespace, "name": d.Name} {
			if v != "" {
				m[field] = v
			}
		}
		if d.LabelSelector != nil {
			m["labelSelector"] = d.LabelSelector
		}
		list = append(list, m)
	}
	return put(out, qDependencies, list, ok, err)
}
