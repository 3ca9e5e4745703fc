package history

import (
	"atoll.dev/atoll/internal/objectdiff"
	"maps"
	"slices"
)

// RevertFields returns a copy of the present document in which the fields have their former values, and
// those that the former document lacks are gone. All other fields stay as they are.
func RevertFields(present, former map[string]any, fields Fields) map[string]any {
	out := maps.Clone(present)
	if out == nil {
		out = map[string]any{}
	}
	for name, sub := range fields {
		p, hasPresent := present[name]
		f, hasFormer := former[name]
		if v, has := revertValue(optional{p, hasPresent}, optional{f, hasFormer}, sub); has {
			out[name] = v
		} else {
			delete(out, name)
		}
	}
	return out
}

// optional is a value that may be missing.
type optional struct {
	value any
	has   bool
}

// revertValue returns the value of a field of which a subtree is reverted; false: the field is gone.
func revertValue(present, former optional, fields Fields) (any, bool) {
	if len(fields) == 0 || !present.has {
		return former.value, former.has
	}
	switch p := present.value.(type) {
	case map[string]any:
		f, ok := former.value.(map[string]any)
		if former.has && !ok {
			return former.value, true
		}
		out := RevertFields(p, f, fields)
		return out, former.has || len(out) > 0
	case []any:
		f, ok := former.value.([]any)
		if former.has && !ok {
			return former.value, true
		}
		return revertList(p, f, former.has, fields)
	}
	return former.value, former.has
}

// revertList reverts elements of a list of named elements; a list that has others now gets its former value.
func revertList(present, former []any, hasFormer bool, fields Fields) (any, bool) {
	p, namedPresent := objectdiff.IndexByName(present)
	f, namedFormer := objectdiff.IndexByName(former)
	if !namedPresent || !namedFormer {
		return former, hasFormer
	}
	reverted := RevertFields(p, f, fields)
	out := orderElements(reverted, present, former)
	return out, hasFormer || len(out) > 0
}

// orderElements orders elements as they are, with those that came back where they were: behind the same
// element as before.
func orderElements(elements map[string]any, present, former []any) []any {
	was := make(map[string]bool, len(present))
	for _, e := range present {
		was[objectdiff.ElementName(e)] = true
	}
	// behind lists what came back, by the element before it.
	behind := map[string][]string{}
	last := ""
	for _, e := range former {
		name := objectdiff.ElementName(e)
		if _, has := elements[name]; !has {
			continue
		}
		if was[name] {
			last = name
		} else {
			behind[last] = append(behind[last], name)
		}
	}
	order := slices.Clone(behind[""])
	for _, e := range present {
		name := objectdiff.ElementName(e)
		if _, has := elements[name]; has {
			order = append(order, name)
		}
		order = append(order, behind[name]...)
	}
	out := make([]any, 0, len(order))
	for _, name := range order {
		out = append(out, elements[name])
	}
	return out
}
