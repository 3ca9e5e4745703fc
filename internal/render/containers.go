package render

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/interpret"
)

// container of a pod template.
type container struct {
	at     []string
	fields map[string]any
}

func (c container) path(parts ...string) []string { return append(slices.Clone(c.at), parts...) }

// containers of that name in all pod templates of the object ("": all), first the
// containers of a template, then its init containers.
func (o *overriding) containers(name string, init bool) (out []container) {
	lists := []string{"containers", "initContainers"}
	if !init {
		lists = lists[:1]
	}
	for _, pod := range interpret.PodTemplates(&unstructured.Unstructured{Object: o.obj}) {
		for _, list := range lists {
			at := append(slices.Clone(pod), list)
			v, _ := interpret.Lookup(o.obj, at)
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

// words changes the command or the args of a container.
func (o *overriding) words(field string, c v1alpha1.CommandArgsOverrider) error {
	for _, at := range o.containers(c.ContainerName, true) {
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
			o.note(nil, at.path(field)...)
			continue
		}
		at.fields[field] = words
		o.note(words, at.path(field)...)
	}
	return nil
}

// env changes environment variables. One that comes replaces what was there of its
// name, references included.
func (o *overriding) env(e v1alpha1.EnvOverrider) error {
	for _, at := range o.containers(e.ContainerName, true) {
		for _, v := range e.Value {
			o.variable(at, e.Operator, v.Name, v.Value)
		}
	}
	return nil
}

func (o *overriding) variable(c container, op v1alpha1.OverriderOperator, name, value string) {
	list, _ := c.fields["env"].([]any)
	i := slices.IndexFunc(list, func(e any) bool {
		m, _ := e.(map[string]any)
		return m["name"] == name
	})
	switch {
	case op == v1alpha1.OverrideRemove && i >= 0:
		o.note(nil, c.path("env", strconv.Itoa(i))...)
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
		o.note(value, c.path("env", strconv.Itoa(i), "value")...)
	}
	c.fields["env"] = list
}

// resources changes requests and limits.
func (o *overriding) resources(r v1alpha1.ResourcesOverrider) error {
	for _, c := range o.containers(r.ContainerName, r.ContainerName != "") {
		o.quantities(c, "limits", r.Operator, r.Limits)
		o.quantities(c, "requests", r.Operator, r.Requests)
	}
	return nil
}

func (o *overriding) quantities(c container, field string, op v1alpha1.OverriderOperator, change map[string]resource.Quantity) {
	both := child(c.fields, "resources")
	if both == nil {
		both = map[string]any{}
	}
	m := child(both, field)
	if m == nil {
		m = map[string]any{}
	}
	for _, name := range sortedKeys(change) {
		_, there := m[name]
		switch {
		case op == v1alpha1.OverrideRemove && there:
			delete(m, name)
			o.note(nil, c.path("resources", field, name)...)
		case op == v1alpha1.OverrideAdd, op == v1alpha1.OverrideReplace && there:
			q := change[name]
			m[name] = q.String()
			o.note(m[name], c.path("resources", field, name)...)
		}
	}
	if both[field] = m; len(m) == 0 {
		delete(both, field)
	}
	if c.fields["resources"] = both; len(both) == 0 {
		delete(c.fields, "resources")
	}
}
