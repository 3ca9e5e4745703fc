package script

import (
	"fmt"
	"maps"
	"slices"
)

// Replicas that an object has, and what each needs.
type Replicas struct {
	Count int64
	// Requires is what a pod needs, as Karmada words it: resourceRequest, nodeClaim,
	// priorityClassName. nil where nothing is said.
	Requires map[string]any
}

// Component of an object that has several sorts of pods.
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

// Dependency that goes where the object goes: one by its name, or those that have labels.
type Dependency struct {
	APIVersion, Kind, Namespace, Name string
	// LabelSelector in the form of metav1.LabelSelector; nil where Name is given.
	LabelSelector map[string]any
}

// stated is the object without what no script is to read of a template: what its members
// report, who wrote which field, and how often it was written.
func stated(object map[string]any) map[string]any {
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

// Replicas of the object. In CEL a number, or {replicas, requirements} or {replicas,
// podTemplate}.
func (c *Customization) Replicas(object map[string]any) (Replicas, bool, error) {
	out, r, err := c.ask(qReplicas, nil, stated(object))
	if r == nil || err != nil {
		return Replicas{}, r != nil, err
	}
	n, requires := out[0], out[1]
	if m, ok := n.(map[string]any); ok && r.cel != nil {
		n, requires = m["replicas"], m["requirements"]
		if template, ok := m["podTemplate"].(map[string]any); ok {
			made, err := podRequirements(template)
			if err != nil {
				return Replicas{}, true, r.nonsense("has a podTemplate: %v", err)
			}
			requires = made
		}
	}
	answer, err := r.replicas(n, requires)
	return answer, true, err
}

func (r *rule) replicas(n, requires any) (out Replicas, err error) {
	count, ok := n.(int64)
	if !ok || count < 0 {
		return out, r.nonsense("is %s, and a number of replicas is needed", kindOf(n))
	}
	out.Count = count
	switch v := requires.(type) {
	case nil, leftOut:
	case map[string]any:
		if len(v) > 0 {
			out.Requires = v
		}
	default:
		return out, r.nonsense("requires %s, and an object is needed", kindOf(requires))
	}
	return out, nil
}

// Components of the object: a list of {name, replicas, replicaRequirements}.
func (c *Customization) Components(object map[string]any) ([]Component, bool, error) {
	list, r, err := c.list(qComponents, object)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	out, taken := make([]Component, 0, len(list)), make(map[string]bool, len(list))
	for i, v := range list {
		m, _ := v.(map[string]any)
		name, ok := m["name"].(string)
		if !ok || name == "" || taken[name] {
			return nil, true, r.nonsense("has at [%d] no name of its own", i)
		}
		taken[name] = true
		needs := m["replicaRequirements"]
		if needs == nil {
			needs = m["requirements"]
		}
		made, err := r.replicas(m["replicas"], needs)
		if err != nil {
			return nil, true, r.nonsense("at [%d].replicas is %s, and a number of replicas is needed", i, kindOf(m["replicas"]))
		}
		out = append(out, Component{Name: name, Replicas: made})
	}
	return out, true, nil
}

// Revise gives the object with another number of replicas. In CEL a merge patch of it.
func (c *Customization) Revise(object map[string]any, replicas int64) (map[string]any, bool, error) {
	return c.object(qRevise, object, replicas)
}

// Retain gives the desired object with what the member has set. In CEL a merge patch of it.
func (c *Customization) Retain(desired, observed map[string]any) (map[string]any, bool, error) {
	return c.object(qRetain, desired, observed)
}

// object is what a question makes of another one, which stays what it is.
func (c *Customization) object(q question, object map[string]any, with any) (map[string]any, bool, error) {
	out, r, err := c.ask(q, object, object, with)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	made, ok := out[0].(map[string]any)
	if !ok {
		return nil, true, r.nonsense("is %s, and an object is needed", kindOf(out[0]))
	}
	if r.cel != nil {
		made = merged(object, made)
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if made[field] != object[field] {
			return nil, true, r.nonsense("has another %s than the object", field)
		}
	}
	was, _ := object["metadata"].(map[string]any)
	is, _ := made["metadata"].(map[string]any)
	for _, field := range []string{"name", "namespace"} {
		if is[field] != was[field] {
			return nil, true, r.nonsense("has another metadata.%s than the object", field)
		}
	}
	return made, true, nil
}

// merged is the object after a merge patch (RFC 7386). It shares what is not patched.
func merged(object, patch map[string]any) map[string]any {
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
			out[k] = merged(inner, v)
		default:
			out[k] = v
		}
	}
	return out
}

// Health of an object as its member has it. true is Healthy; false is Progressing, since it
// does not say that it will not become healthy.
func (c *Customization) Health(observed map[string]any) (Health, bool, error) {
	out, r, err := c.ask(qHealth, nil, observed)
	if r == nil || err != nil {
		return Health{}, r != nil, err
	}
	switch v := out[0].(type) {
	case bool:
		if v {
			return Health{Status: "Healthy"}, true, nil
		}
		return Health{Status: "Progressing", Message: "its interpreter says that it is not healthy"}, true, nil
	case string:
		if slices.Contains(healthStatuses, v) {
			return Health{Status: v}, true, nil
		}
	case map[string]any:
		status, _ := v["status"].(string)
		message, isText := v["message"].(string)
		if v["message"] != nil && !isText {
			return Health{}, true, r.nonsense("has a message that is %s", kindOf(v["message"]))
		}
		if slices.Contains(healthStatuses, status) {
			return Health{Status: status, Message: cut(message, maxMessage)}, true, nil
		}
		return Health{}, true, r.nonsense("has the status %s, which is none of %v", kindOf(v["status"]), healthStatuses)
	}
	return Health{}, true, r.nonsense("is %s, and a health is needed: a boolean, or {status, message}", kindOf(out[0]))
}

// Reflect gives the status to report of an object as its member has it; nil for none.
func (c *Customization) Reflect(observed map[string]any) (map[string]any, bool, error) {
	out, r, err := c.ask(qStatus, observed["status"], observed)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	status, err := r.status(out[0])
	return status, true, err
}

func (r *rule) status(v any) (map[string]any, error) {
	switch v := v.(type) {
	case nil, leftOut:
		return nil, nil
	case map[string]any:
		return v, nil
	}
	return nil, r.nonsense("is %s, and a status is needed, which is an object", kindOf(v))
}

// Aggregate gives the status of the template out of items {clusterName, status, ...}, one
// for each member; nil for none. A script in Lua gives the object with that status. It sees
// the object without the status that this is to replace, as before any member reported: what
// it answers is written there, and would else change what it is asked.
func (c *Customization) Aggregate(object map[string]any, items []any) (map[string]any, bool, error) {
	object = stated(object)
	like := merged(object, nil)
	for _, item := range items { // an empty table is what a member has in its place
		m, _ := item.(map[string]any)
		if status, ok := m["status"].(map[string]any); ok {
			like["status"] = status
			break
		}
	}
	out, r, err := c.ask(qAggregate, like, object, items)
	if r == nil || err != nil {
		return nil, r != nil, err
	}
	answer := out[0]
	if r.lua != nil {
		made, ok := answer.(map[string]any)
		if !ok {
			return nil, true, r.nonsense("is %s, and the object is needed", kindOf(answer))
		}
		answer = made["status"]
	}
	status, err := r.status(answer)
	return status, true, err
}

// Dependencies of the object: a list of {apiVersion, kind, namespace, name}, or with a
// labelSelector, which counts where there is no name. nil and null are no answer: who says
// nothing does not say that there are none, which is an empty list.
func (c *Customization) Dependencies(object map[string]any) ([]Dependency, bool, error) {
	out, r, err := c.ask(qDependencies, nil, stated(object))
	if r == nil || err != nil || out[0] == nil {
		return nil, r != nil && err != nil, err
	}
	list, err := r.list(out[0])
	if err != nil {
		return nil, true, err
	}
	return r.dependencies(list)
}

func (r *rule) dependencies(list []any) ([]Dependency, bool, error) {
	out := make([]Dependency, 0, len(list))
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, true, r.nonsense("at [%d] is %s, and a reference is needed", i, kindOf(v))
		}
		var d Dependency
		for field, to := range map[string]*string{"apiVersion": &d.APIVersion, "kind": &d.Kind, "namespace": &d.Namespace, "name": &d.Name} {
			s, isText := m[field].(string)
			if m[field] != nil && !isText {
				return nil, true, r.nonsense("at [%d].%s is %s, and a string is needed", i, field, kindOf(m[field]))
			}
			*to = s
		}
		selector, isObject := m["labelSelector"].(map[string]any)
		if m["labelSelector"] != nil && !isObject {
			return nil, true, r.nonsense("at [%d].labelSelector is %s, and an object is needed", i, kindOf(m["labelSelector"]))
		}
		if d.APIVersion == "" || d.Kind == "" || d.Name == "" && selector == nil {
			return nil, true, r.nonsense("at [%d] needs an apiVersion, a kind and a name or a labelSelector", i)
		}
		if d.Name == "" { // as Karmada has it
			d.LabelSelector = selector
		}
		out = append(out, d)
	}
	return out, true, nil
}

// list that a question about the object gives; nothing is an empty one.
func (c *Customization) list(q question, object map[string]any) ([]any, *rule, error) {
	out, r, err := c.ask(q, nil, stated(object))
	if r == nil || err != nil {
		return nil, r, err
	}
	list, err := r.list(out[0])
	return list, r, err
}

func (r *rule) list(v any) ([]any, error) {
	switch v := v.(type) {
	case nil, leftOut:
		return nil, nil
	case []any:
		return v, nil
	}
	return nil, r.nonsense("is %s, and a list is needed", kindOf(v))
}

// String of a Health for people.
func (h Health) String() string {
	if h.Message == "" {
		return h.Status
	}
	return fmt.Sprintf("%s: %s", h.Status, h.Message)
}
