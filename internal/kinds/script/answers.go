package script

import (
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/phrase"
)

// Replicas of an object, and what each of them requires.
type Replicas struct {
	Count int64
	// Requires is what a pod requires, in Karmada's terms: resourceRequest, nodeClaim,
	// priorityClassName. nil where the script states nothing.
	Requires map[string]any
}

// Component is one of several kinds of pods that an object has.
type Component struct {
	Name string
	Replicas
}

// Health of an object in a member.
type Health struct {
	// Status is Healthy, Progressing, Degraded, Suspended, Missing or Unknown.
	Status, Message string
}

var healthStatuses = []string{"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"}

// maxMessage of a Health, in bytes.
const maxMessage = 256

// Dependency of an object: one object by its name, or several by labels.
type Dependency struct {
	APIVersion, Kind, Namespace, Name string
	// LabelSelector in the form of metav1.LabelSelector; nil where Name is given.
	LabelSelector map[string]any
}

// withoutServerFields returns the object without what its members report, its managed fields and
// its resource version. Scripts that run on a template do not see these.
func withoutServerFields(object map[string]any) map[string]any {
	out := maps.Clone(object)
	delete(out, "status")
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "managedFields")
		delete(meta, "resourceVersion")
		out["metadata"] = meta
	}
	return out
}

// ReplicasOf returns the replicas of the object. A CEL rule returns a number, {replicas,
// requirements} or {replicas, podTemplate}.
func (c *Customization) ReplicasOf(object map[string]any) (Replicas, bool, error) {
	out, r, err := c.runQuestion(qReplicas, nil, withoutServerFields(object))
	if r == nil || err != nil {
		return Replicas{}, r != nil, err
	}
	n, requires := out[0], out[1]
	if m, ok := n.(map[string]any); ok && r.cel != nil {
		n, requires = m["replicas"], m["requirements"]
		if template, ok := m["podTemplate"].(map[string]any); ok {
			made, err := podRequirements(template)
			if err != nil {
				return Replicas{}, true, r.answerError("has a podTemplate: %v", err)
			}
			requires = made
		}
	}
	answer, err := r.decodeReplicas(n, requires)
	return answer, true, err
}

func (r *rule) decodeReplicas(n, requires any) (out Replicas, err error) {
	count, ok := n.(int64)
	if !ok || count < 0 {
		return out, r.answerError("is %s, and a number of replicas is needed", describeJSON(n))
	}
	out.Count = count
	switch v := requires.(type) {
	case nil, omittedTable:
	case map[string]any:
		if len(v) > 0 {
			out.Requires = v
		}
	default:
		return out, r.answerError("requires %s, and an object is needed", describeJSON(requires))
	}
	return out, nil
}

// ComponentsOf returns the components of the object. A rule returns a list of {name, replicas,
// replicaRequirements}.
func (c *Customization) ComponentsOf(object map[string]any) ([]Component, bool, error) {
	list, r, err := c.runForList(qComponents, object)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	out, taken := make([]Component, 0, len(list)), make(map[string]bool, len(list))
	for i, v := range list {
		m, _ := v.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || name == "" || taken[name] {
			return nil, true, r.answerError("has at [%d] no name of its own", i)
		}
		taken[name] = true
		needs := m["replicaRequirements"]
		if needs == nil {
			needs = m["requirements"]
		}
		made, err := r.decodeReplicas(m["replicas"], needs)
		if err != nil {
			return nil, true, r.answerError("at [%d].replicas is %s, and a number of replicas is needed", i, describeJSON(m["replicas"]))
		}
		out = append(out, Component{Name: name, Replicas: made})
	}
	return out, true, nil
}

// ReviseReplicas returns the object with another number of replicas. A CEL rule returns a merge
// patch.
func (c *Customization) ReviseReplicas(object map[string]any, replicas int64) (map[string]any, bool, error) {
	return c.runForObject(qRevise, object, replicas)
}

// RetainFields returns the desired object with the values that the member owns. A CEL rule
// returns a merge patch.
func (c *Customization) RetainFields(desired, observed map[string]any) (map[string]any, bool, error) {
	return c.runForObject(qRetain, desired, observed)
}

// runForObject runs an operation whose answer is an object of the same identity as the first
// argument.
func (c *Customization) runForObject(q question, runForObject map[string]any, with any) (map[string]any, bool, error) {
	out, r, err := c.runQuestion(q, runForObject, runForObject, with)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	made, ok := out[0].(map[string]any)
	if !ok {
		return nil, true, r.answerError("is %s, and an object is needed", describeJSON(out[0]))
	}
	if r.cel != nil {
		made = applyMergePatch(runForObject, made)
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if made[field] != runForObject[field] {
			return nil, true, r.answerError("has another %s than the object", field)
		}
	}
	was, _ := runForObject["metadata"].(map[string]any)
	is, _ := made["metadata"].(map[string]any)
	for _, field := range []string{"name", "namespace"} {
		if is[field] != was[field] {
			return nil, true, r.answerError("has another metadata.%s than the object", field)
		}
	}
	return made, true, nil
}

// applyMergePatch returns the object after a merge patch (RFC 7386). The result shares all
// unpatched values.
func applyMergePatch(object, patch map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for k, v := range object {
		out[k] = v
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			inner, _ := out[k].(map[string]any)
			out[k] = applyMergePatch(inner, v)
		default:
			out[k] = v
		}
	}
	return out
}

// AssessHealth returns the health of an object of a member. A rule that returns false gives
// Progressing: false does not mean that the object stays unhealthy.
func (c *Customization) AssessHealth(observed map[string]any) (Health, bool, error) {
	out, r, err := c.runQuestion(qHealth, nil, observed)
	if r == nil || err != nil {
		return Health{}, r != nil, err
	}
	switch v := out[0].(type) {
	case bool:
		if v {
			return Health{Status: "Healthy"}, true, nil
		}
		return Health{Status: "Progressing", Message: "its interpreter reports that it is not healthy"}, true, nil
	case string:
		if slices.Contains(healthStatuses, v) {
			return Health{Status: v}, true, nil
		}
	case map[string]any:
		status, _ := v["status"].(string)
		message, isText := v["message"].(string)
		if v["message"] != nil && !isText {
			return Health{}, true, r.answerError("has a message that is %s", describeJSON(v["message"]))
		}
		if slices.Contains(healthStatuses, status) {
			return Health{Status: status, Message: phrase.CutText(message, maxMessage)}, true, nil
		}
		return Health{}, true, r.answerError("has the status %s, which is none of %v", describeJSON(v["status"]), healthStatuses)
	}
	return Health{}, true, r.answerError("is %s, and a health is needed: a boolean, or {status, message}", describeJSON(out[0]))
}

// ReflectStatus returns the status that a cluster reports of an object of a member; nil for
// none.
func (c *Customization) ReflectStatus(observed map[string]any) (map[string]any, bool, error) {
	out, r, err := c.runQuestion(qStatus, observed["status"], observed)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	status, err := r.decodeStatus(out[0])
	return status, true, err
}

func (r *rule) decodeStatus(v any) (map[string]any, error) {
	switch v := v.(type) {
	case nil, omittedTable:
		return nil, nil
	case map[string]any:
		return v, nil
	}
	return nil, r.answerError("is %s, and a status is needed, which is an object", describeJSON(v))
}

// AggregateStatus returns the status of the template from items {clusterName, status, ...}, one
// for each member; nil for none. A script in Lua returns the object with that status. The script
// sees the object without its present status: the answer is written there, and would change the
// next question.
func (c *Customization) AggregateStatus(object map[string]any, items []any) (map[string]any, bool, error) {
	object = withoutServerFields(object)
	like := applyMergePatch(object, nil)
	for _, item := range items { // an empty table takes the type of the member's value
		m, _ := item.(map[string]any)
		if status, ok := m["status"].(map[string]any); ok {
			like["status"] = status
			break
		}
	}
	out, r, err := c.runQuestion(qAggregate, like, object, items)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	answer := out[0]
	if r.lua != nil {
		made, ok := answer.(map[string]any)
		if !ok {
			return nil, true, r.answerError("is %s, and the object is needed", describeJSON(answer))
		}
		answer = made["status"]
	}
	status, err := r.decodeStatus(answer)
	return status, true, err
}

// DependenciesOf returns the dependencies of the object. A rule returns a list of {apiVersion,
// kind, namespace, name}, or with a labelSelector, which counts where there is no name. nil and
// null are no answer; an empty list means that there are no dependencies.
func (c *Customization) DependenciesOf(object map[string]any) ([]Dependency, bool, error) {
	out, r, err := c.runQuestion(qDependencies, nil, withoutServerFields(object))
	if r == nil || err != nil || out[0] == nil {
		return nil, r != nil && err != nil, err
	}
	list, err := r.decodeList(out[0])
	if err != nil {
		return nil, true, err
	}
	return r.decodeDependencies(list)
}

func (r *rule) decodeDependencies(list []any) ([]Dependency, bool, error) {
	out := make([]Dependency, 0, len(list))
	for i, v := range list {
		d, err := r.decodeDependency(i, v)
		if err != nil {
			return nil, true, err
		}
		out = append(out, d)
	}
	return out, true, nil
}

func (r *rule) decodeDependency(i int, v any) (d Dependency, err error) {
	m, ok := v.(map[string]any)
	if !ok {
		return d, r.answerError("at [%d] is %s, and a reference is needed", i, describeJSON(v))
	}
	for field, to := range map[string]*string{"apiVersion": &d.APIVersion, "kind": &d.Kind, "namespace": &d.Namespace, "name": &d.Name} {
		s, isText := m[field].(string)
		if m[field] != nil && !isText {
			return d, r.answerError("at [%d].%s is %s, and a string is needed", i, field, describeJSON(m[field]))
		}
		*to = s
	}
	selector, isObject := m["labelSelector"].(map[string]any)
	if m["labelSelector"] != nil && !isObject {
		return d, r.answerError("at [%d].labelSelector is %s, and an object is needed", i, describeJSON(m["labelSelector"]))
	}
	if d.APIVersion == "" || d.Kind == "" || d.Name == "" && selector == nil {
		return d, r.answerError("at [%d] needs an apiVersion, a kind and a name or a labelSelector", i)
	}
	if d.Name == "" { // as in Karmada
		d.LabelSelector = selector
	}
	return d, nil
}

// runForList runs an operation whose answer is a list; no answer is an empty list.
func (c *Customization) runForList(q question, object map[string]any) ([]any, *rule, error) {
	out, r, err := c.runQuestion(q, nil, withoutServerFields(object))
	if r == nil || err != nil {
		return nil, r, err
	}
	list, err := r.decodeList(out[0])
	return list, r, err
}

func (r *rule) decodeList(v any) ([]any, error) {
	switch v := v.(type) {
	case nil, omittedTable:
		return nil, nil
	case []any:
		return v, nil
	}
	return nil, r.answerError("is %s, and a list is needed", describeJSON(v))
}

// String returns the status and the message.
func (h Health) String() string {
	if h.Message == "" {
		return h.Status
	}
	return fmt.Sprintf("%s: %s", h.Status, h.Message)
}
