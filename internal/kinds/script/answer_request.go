package script

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// EvaluationRequest holds the inputs about one object. Every operation whose inputs are present
// runs.
type EvaluationRequest struct {
	// Object is the desired object.
	Object map[string]any
	// Observed is the object as a member has it. nil: health and status read Object.
	Observed map[string]any
	// Items are the statuses of many members, each {clusterName, status, ...}.
	Items []any
	// Replicas that the object is revised to.
	Replicas *int64
	// Op limits the request to one question, by the key of its answer or by Karmada's name.
	Op string
}

// karmadaOperations are Karmada's names of questions, in lower case.
var karmadaOperations = map[string]question{
	"interpretreplica": qReplicas, "interpretcomponent": qComponents, "revisereplica": qRevise, "retain": qRetain,
	"interprethealth": qHealth, "interpretstatus": qStatus, "aggregatestatus": qAggregate, "interpretdependency": qDependencies,
}

// ParseQuestion returns the key of the answer that an op names.
func ParseQuestion(op string) (string, error) {
	if _, ok := questions[question(op)]; ok {
		return op, nil
	}
	if q, ok := karmadaOperations[strings.ToLower(op)]; ok {
		return string(q), nil
	}
	var names []string
	for q := range questions {
		names = append(names, string(q))
	}
	slices.Sort(names)
	return "", fmt.Errorf("there is no op %q: it is one of %s", op, strings.Join(names, ", "))
}

// AnswerRequest returns the answers of scripts by the keys replicas, requirements, components,
// revised, retained, health (status, message), status, aggregated and dependencies. A key is
// present only where a script answers the question, and the script is the one that hub and
// agents use. The values are those of JSON. An op whose input is missing is an error, and so is
// the first script that fails.
func (x Interpreters) AnswerRequest(a EvaluationRequest) (map[string]any, error) {
	only := ""
	if a.Op != "" {
		q, err := ParseQuestion(a.Op)
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
	for _, step := range a.answerSteps(out, observed) {
		if only != "" && only != string(step.question) {
			continue
		}
		if step.lacks != "" {
			if only != "" {
				return nil, fmt.Errorf("%s needs %s", only, step.lacks)
			}
			continue
		}
		if c := x.findInterpreter(gvk, step.question); c != nil {
			if _, err := step.ask(c); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// answerStep runs one operation; lacks names the input that is missing.
type answerStep struct {
	question question
	lacks    string
	ask      func(c *Customization) (bool, error)
}

// answerSteps write their answers into out.
func (a EvaluationRequest) answerSteps(out, observed map[string]any) []answerStep {
	return []answerStep{
		{qReplicas, "", func(c *Customization) (bool, error) { return c.putReplicas(out, a.Object) }},
		{qComponents, "", func(c *Customization) (bool, error) { return c.putComponents(out, a.Object) }},
		{qRevise, inputNameIfMissing(a.Replicas == nil, "a number of replicas"), func(c *Customization) (bool, error) {
			v, ok, err := c.ReviseReplicas(a.Object, *a.Replicas)
			return putAnswer(out, qRevise, v, ok, err)
		}},
		{qRetain, inputNameIfMissing(a.Observed == nil, "the observed object"), func(c *Customization) (bool, error) {
			v, ok, err := c.RetainFields(a.Object, a.Observed)
			return putAnswer(out, qRetain, v, ok, err)
		}},
		{qHealth, "", func(c *Customization) (bool, error) { return c.putHealth(out, observed) }},
		{qStatus, "", func(c *Customization) (bool, error) {
			v, ok, err := c.ReflectStatus(observed)
			return putAnswer(out, qStatus, v, ok && v != nil, err)
		}},
		{qAggregate, inputNameIfMissing(a.Items == nil, "items"), func(c *Customization) (bool, error) {
			v, ok, err := c.AggregateStatus(a.Object, a.Items)
			return putAnswer(out, qAggregate, v, ok && v != nil, err)
		}},
		{qDependencies, "", func(c *Customization) (bool, error) { return c.putDependencies(out, a.Object) }},
	}
}

func inputNameIfMissing(does bool, what string) string {
	if does {
		return what
	}
	return ""
}

func putAnswer(out map[string]any, q question, v any, ok bool, err error) (bool, error) {
	if ok && err == nil {
		out[string(q)] = v
	}
	return ok, err
}

func (c *Customization) putReplicas(out map[string]any, object map[string]any) (bool, error) {
	r, ok, err := c.ReplicasOf(object)
	if ok && err == nil {
		out[string(qReplicas)] = r.Count
		if r.Requires != nil {
			out["requirements"] = r.Requires
		}
	}
	return ok, err
}

func (c *Customization) putComponents(out map[string]any, object map[string]any) (bool, error) {
	cs, ok, err := c.ComponentsOf(object)
	list := make([]any, 0, len(cs))
	for _, one := range cs {
		m := map[string]any{"name": one.Name, "replicas": one.Count}
		if one.Requires != nil {
			m["requirements"] = one.Requires
		}
		list = append(list, m)
	}
	return putAnswer(out, qComponents, list, ok, err)
}

func (c *Customization) putHealth(out map[string]any, observed map[string]any) (bool, error) {
	h, ok, err := c.AssessHealth(observed)
	m := map[string]any{"status": h.Status}
	if h.Message != "" {
		m["message"] = h.Message
	}
	return putAnswer(out, qHealth, m, ok, err)
}

func (c *Customization) putDependencies(out map[string]any, object map[string]any) (bool, error) {
	ds, ok, err := c.DependenciesOf(object)
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
	return putAnswer(out, qDependencies, list, ok, err)
}
