package overrides

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/userfields"
)

// container is a container of a pod template.
type container struct {
	location []string
	fields   map[string]any
}

func (c container) fieldPath(parts ...string) []string {
	return append(slices.Clone(c.location), parts...)
}

// findContainers returns the containers of that name in all pod templates of the object ("": all).
// The containers of a template come before its init containers.
func (o *ObjectPatcher) findContainers(name string, init bool) (out []container) {
	lists := []string{"containers", "initContainers"}
	if !init {
		lists = lists[:1]
	}
	for _, pod := range kinds.PodSpecPaths(&unstructured.Unstructured{Object: o.Object}) {
		for _, list := range lists {
			at := append(slices.Clone(pod), list)
			v, _ := kinds.LookupPath(o.Object, at)
			all, _ := v.([]any)
			for i, c := range all {
				m, ok := c.(map[string]any)
				if !ok || name != "" && m["name"] != name {
					continue
				}
				out = append(out, container{append(slices.Clone(at), strconv.Itoa(i)), m})
			}
		}
	}
	return out
}

// overrideCommandArgs changes the command or the args of a container.
func (o *ObjectPatcher) overrideCommandArgs(field string, c *v1alpha1.CommandArgsOverrider) error {
	for _, at := range o.findContainers(c.ContainerName, true) {
		old, _ := at.fields[field].([]any)
		words := slices.Clone(old)
		if c.Operator == v1alpha1.OverrideRemove {
			words = slices.DeleteFunc(words, func(w any) bool {
				s, ok := w.(string)
				return ok && slices.Contains(c.Value, s)
			})
		} else {
			for _, w := range c.Value {
				words = append(words, w)
			}
		}
		if len(words) == len(old) {
			continue
		}
		if len(words) == 0 {
			delete(at.fields, field)
			o.noteChange(nil, at.fieldPath(field)...)
			continue
		}
		at.fields[field] = words
		o.noteChange(words, at.fieldPath(field)...)
	}
	return nil
}

// overrideEnv changes environment variables. A variable replaces the former one of its name,
// references included.
func (o *ObjectPatcher) overrideEnv(e *v1alpha1.EnvOverrider) error {
	for _, at := range o.findContainers(e.ContainerName, true) {
		for _, v := range e.Value {
			o.overrideVariable(at, e.Operator, v.Name, v.Value)
		}
	}
	return nil
}

func (o *ObjectPatcher) overrideVariable(c container, op v1alpha1.OverriderOperator, name, value string) {
	list, _ := c.fields["env"].([]any)
	i := slices.IndexFunc(list, func(e any) bool {
		m, _ := e.(map[string]any)
		return m["name"] == name
	})
	switch {
	case op == v1alpha1.OverrideRemove && i >= 0:
		o.noteChange(nil, c.fieldPath("env", strconv.Itoa(i))...)
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(c.fields, "env")
			return
		}
	case op == v1alpha1.OverrideRemove, op == v1alpha1.OverrideReplace && i < 0:
		return
	default:
		if i < 0 {
			i, list = len(list), append(list, nil)
		}
		list[i] = map[string]any{"name": name, "value": value}
		o.noteChange(value, c.fieldPath("env", strconv.Itoa(i), "value")...)
	}
	c.fields["env"] = list
}

// overrideResources changes requests and limits.
func (o *ObjectPatcher) overrideResources(r *v1alpha1.ResourcesOverrider) error {
	for _, c := range o.findContainers(r.ContainerName, r.ContainerName != "") {
		o.overrideQuantities(c, "limits", r.Operator, r.Limits)
		o.overrideQuantities(c, "requests", r.Operator, r.Requests)
	}
	return nil
}

func (o *ObjectPatcher) overrideQuantities(c container, field string, op v1alpha1.OverriderOperator, change map[string]resource.Quantity) {
	both := userfields.ChildMap(c.fields, "resources")
	if both == nil {
		both = map[string]any{}
	}
	m := userfields.ChildMap(both, field)
	if m == nil {
		m = map[string]any{}
	}
	for _, name := range sortedKeys(change) {
		_, there := m[name]
		switch {
		case op == v1alpha1.OverrideRemove && there:
			delete(m, name)
			o.noteChange(nil, c.fieldPath("resources", field, name)...)
		case op == v1alpha1.OverrideAdd, op == v1alpha1.OverrideReplace && there:
			q := change[name]
			m[name] = q.String()
			o.noteChange(m[name], c.fieldPath("resources", field, name)...)
		}
	}
	if both[field] = m; len(m) == 0 {
		delete(both, field)
	}
	if c.fields["resources"] = both; len(both) == 0 {
		delete(c.fields, "resources")
	}
}
