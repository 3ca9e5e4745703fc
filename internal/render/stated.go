package render

import (
	"maps"
	"slices"
)

// field is a node of a template as the pruning sees it.
type field struct {
	value    any // of scalars, of lists of scalars, and of empty maps and lists
	children map[string]*field
	elements []*field
	kind     fieldKind
	// explicit fields stay, whatever their value.
	explicit bool
	// doubtful fields stay unless their value is the API's default.
	doubtful bool
	// defaulted: a doubtful field was found to hold the default.
	defaulted bool
}

type fieldKind byte

const (
	leafField fieldKind = iota
	mapField
	listField
)

// ownership is what the walk knows at one field.
type ownership struct {
	*owners
	// within tells that a field above is owned as a whole: by anyone.
	within bool
	// last is the field's value in the last-applied annotation.
	last    any
	hasLast bool
}

func (o ownership) explicit() bool { return o.hasLast || o.owners != nil && o.applied }
func (o ownership) doubtful() bool { return o.within || o.owned() }

// whole tells that what lies below is owned because this field is.
func (o ownership) whole() bool { return o.within || o.owned() && o.leaf() }

func (o ownership) child(name string) ownership {
	c := ownership{owners: o.field(name), within: o.whole()}
	if m, ok := o.last.(map[string]any); ok && o.hasLast {
		c.last, c.hasLast = m[name]
	}
	return c
}

// stated gives what of the value was stated, or may have been; nil for nothing.
func stated(value any, o ownership) *field {
	switch v := value.(type) {
	case map[string]any:
		return statedMap(v, o)
	case []any:
		return statedList(v, o)
	}
	return statedLeaf(value, o)
}

func statedLeaf(value any, o ownership) *field {
	if o.explicit() || o.doubtful() {
		return &field{value: value, explicit: o.explicit(), doubtful: !o.explicit()}
	}
	return nil
}

func statedMap(m map[string]any, o ownership) *field {
	if len(m) == 0 {
		return statedLeaf(m, o)
	}
	f := &field{kind: mapField, explicit: o.explicit(), children: map[string]*field{}}
	for name, v := range m {
		if name == "creationTimestamp" && v == nil {
			continue
		}
		if c := stated(v, o.child(name)); c != nil {
			f.children[name] = c
		}
	}
	if len(f.children) == 0 && !f.explicit {
		return nil
	}
	return f
}

func statedList(l []any, o ownership) *field {
	if o.owners != nil && (len(o.keyed) > 0 || len(o.values) > 0) {
		return statedElements(l, o)
	}
	if !o.explicit() && !o.doubtful() {
		return nil
	}
	if len(l) == 0 || !allMaps(l) {
		return statedLeaf(l, o)
	}
	f := &field{kind: listField, explicit: true}
	last, _ := o.last.([]any)
	for i, e := range l {
		below := ownership{within: true}
		if o.hasLast && len(last) == len(l) {
			below.last, below.hasLast = last[i], true
		} else if o.hasLast {
			below.last, below.hasLast = e, true
		}
		f.elements = append(f.elements, statedElement(e, below, nil))
	}
	return f
}

// statedElements is for lists whose elements are owned one by one.
func statedElements(l []any, o ownership) *field {
	f := &field{kind: listField, explicit: o.explicit()}
	last, _ := o.last.([]any)
	for _, e := range l {
		m, isMap := e.(map[string]any)
		if !isMap {
			if own := o.value(e); o.within || own.owned() || o.hasLast && contains(last, e) {
				f.elements = append(f.elements, &field{value: e, explicit: true})
			}
			continue
		}
		k := o.element(m)
		below := ownership{within: o.within}
		var key map[string]any
		if k != nil {
			below.owners, key = k.owners, k.key
			below.last, below.hasLast = find(last, key)
		}
		if k == nil && !o.within {
			continue
		}
		if c := statedElement(m, below, key); len(c.children) > len(key) || below.owned() || below.hasLast || o.within {
			f.elements = append(f.elements, c)
		}
	}
	if len(f.elements) == 0 && !f.explicit {
		return nil
	}
	f.explicit = true
	return f
}

// statedElement keeps the element and the fields that tell it from others.
func statedElement(e any, o ownership, key map[string]any) *field {
	f := stated(e, o)
	if f == nil || f.kind != mapField {
		if len(key) == 0 {
			return &field{value: map[string]any{}, explicit: true}
		}
		f = &field{kind: mapField, children: map[string]*field{}}
	}
	for name, v := range key {
		f.children[name] = &field{value: v, explicit: true}
	}
	f.explicit = true
	return f
}

func allMaps(l []any) bool {
	for _, e := range l {
		if _, ok := e.(map[string]any); !ok {
			return false
		}
	}
	return true
}

func contains(l []any, v any) bool {
	for _, e := range l {
		if equal(e, v) {
			return true
		}
	}
	return false
}

// find the element that the key tells; a key field that the element leaves out has
// its default and does not speak against it.
func find(l []any, key map[string]any) (any, bool) {
	for _, e := range l {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		matches := true
		for name, want := range key {
			if have, ok := m[name]; ok && !equal(have, want) {
				matches = false
			}
		}
		if matches {
			return m, true
		}
	}
	return nil, false
}

// emission says which doubtful fields to leave out, and whether the maps that
// become empty by that stay.
type emission struct {
	drop     func(*field) bool
	keepMaps bool
}

// emit gives the JSON value of what stays.
func (f *field) emit(e emission) (any, bool) {
	switch f.kind {
	case mapField:
		m := make(map[string]any, len(f.children))
		for name, c := range f.children {
			if v, ok := c.emit(e); ok {
				m[name] = v
			}
		}
		return m, len(m) > 0 || f.explicit || e.keepMaps
	case listField:
		l := make([]any, 0, len(f.elements))
		for _, c := range f.elements {
			if v, ok := c.emit(e); ok {
				l = append(l, v)
			}
		}
		return l, true
	}
	return f.value, !(f.doubtful && e.drop(f))
}

// pair is a doubtful field beside the value that some other object has at the same
// place.
type pair struct {
	*field
	value any
	there bool
}

// pairs walks the doubtful fields, in order, along with another object in which lists
// have the same elements.
func (f *field) pairs(other any, there bool, out []pair) []pair {
	switch f.kind {
	case mapField:
		m, _ := other.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(f.children)) {
			v, ok := m[name]
			out = f.children[name].pairs(v, there && ok, out)
		}
	case listField:
		l, _ := other.([]any)
		for i, c := range f.elements {
			if i < len(l) {
				out = c.pairs(l[i], there, out)
			} else {
				out = c.pairs(nil, false, out)
			}
		}
	default:
		if f.doubtful {
			out = append(out, pair{f, other, there})
		}
	}
	return out
}
