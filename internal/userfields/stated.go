package userfields

import (
	"maps"
	"slices"
)

// field is a node of a template while its stated fields are found.
type field struct {
	value    any // of scalars, of lists of scalars, and of empty maps and lists
	children map[string]*field
	elements []*field
	kind     fieldKind
	// explicit fields stay, whatever their value.
	explicit bool
	// doubtful fields stay unless their value is the API's default.
	doubtful bool
	// defaulted: the doubtful field holds the API's default.
	defaulted bool
}

type fieldKind byte

const (
	leafField fieldKind = iota
	mapField
	listField
)

// ownership is what is known about the owners of one field.
type ownership struct {
	*owners
	// isOwnedAbove: any user owns a field above as a whole.
	isOwnedAbove bool
	// last is the field's value in the last-applied annotation.
	last    any
	hasLast bool
}

func (o ownership) isExplicit() bool { return o.hasLast || o.owners != nil && o.applied }
func (o ownership) isDoubtful() bool { return o.isOwnedAbove || o.isOwned() }

// isOwnedWhole returns whether everything below is owned because this field is.
func (o ownership) isOwnedWhole() bool { return o.isOwnedAbove || o.isOwned() && o.isLeaf() }

func (o ownership) childOwnership(name string) ownership {
	c := ownership{owners: o.childField(name), isOwnedAbove: o.isOwnedWhole()}
	if m, ok := o.last.(map[string]any); ok && o.hasLast {
		c.last, c.hasLast = m[name]
	}
	return c
}

// findStated returns the part of the value that was stated, or may have been stated; nil for
// nothing.
func findStated(value any, o ownership) *field {
	switch v := value.(type) {
	case map[string]any:
		return statedMap(v, o)
	case []any:
		return statedList(v, o)
	}
	return statedLeaf(value, o)
}

func statedLeaf(value any, o ownership) *field {
	if o.isExplicit() || o.isDoubtful() {
		return &field{value: value, explicit: o.isExplicit(), doubtful: !o.isExplicit()}
	}
	return nil
}

func statedMap(m map[string]any, o ownership) *field {
	if len(m) == 0 {
		return statedLeaf(m, o)
	}
	f := &field{kind: mapField, explicit: o.isExplicit(), children: map[string]*field{}}
	for name, v := range m {
		if name == "creationTimestamp" && v == nil {
			continue
		}
		if c := findStated(v, o.childOwnership(name)); c != nil {
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
	if !o.isExplicit() && !o.isDoubtful() {
		return nil
	}
	if len(l) == 0 || !areAllMaps(l) {
		return statedLeaf(l, o)
	}
	f := &field{kind: listField, explicit: true}
	last, _ := o.last.([]any)
	for i, e := range l {
		below := ownership{isOwnedAbove: true}
		if o.hasLast && len(last) == len(l) {
			below.last, below.hasLast = last[i], true
		} else if o.hasLast {
			below.last, below.hasLast = e, true
		}
		f.elements = append(f.elements, statedElement(e, below, nil))
	}
	return f
}

// statedElements handles lists whose elements are owned one by one.
func statedElements(l []any, o ownership) *field {
	f := &field{kind: listField, explicit: o.isExplicit()}
	last, _ := o.last.([]any)
	for _, e := range l {
		if m, isMap := e.(map[string]any); isMap {
			if c := statedMapElement(m, o, last); c != nil {
				f.elements = append(f.elements, c)
			}
		} else if own := o.findValue(e); o.isOwnedAbove || own.isOwned() || o.hasLast && containsJSON(last, e) {
			f.elements = append(f.elements, &field{value: e, explicit: true})
		}
	}
	if len(f.elements) == 0 && !f.explicit {
		return nil
	}
	f.explicit = true
	return f
}

// statedMapElement handles a map in a list whose elements are owned one by one. It returns nil where
// the user did not set the element. last is the list as last applied.
func statedMapElement(m map[string]any, o ownership, last []any) *field {
	k := o.findElement(m)
	below := ownership{isOwnedAbove: o.isOwnedAbove}
	var key map[string]any
	if k != nil {
		below.owners, key = k.owners, k.key
		below.last, below.hasLast = findByKey(last, key)
	} else if !o.isOwnedAbove {
		return nil
	}
	if c := statedElement(m, below, key); len(c.children) > len(key) || below.isOwned() || below.hasLast || o.isOwnedAbove {
		return c
	}
	return nil
}

// statedElement keeps the element and the fields that identify it.
func statedElement(e any, o ownership, key map[string]any) *field {
	f := findStated(e, o)
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

func areAllMaps(l []any) bool {
	for _, e := range l {
		if _, ok := e.(map[string]any); !ok {
			return false
		}
	}
	return true
}

func containsJSON(l []any, v any) bool {
	for _, e := range l {
		if EqualJSON(e, v) {
			return true
		}
	}
	return false
}

// findByKey returns the element with the key. A key field that the element leaves out has its
// default, and matches.
func findByKey(l []any, key map[string]any) (any, bool) {
	for _, e := range l {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		matches := true
		for name, want := range key {
			if have, ok := m[name]; ok && !EqualJSON(have, want) {
				matches = false
			}
		}
		if matches {
			return m, true
		}
	}
	return nil, false
}

// emitOptions chooses the doubtful fields to leave out. keepMaps keeps maps that become empty by
// it.
type emitOptions struct {
	drop     func(*field) bool
	keepMaps bool
}

// emitValue returns the JSON value of the fields that stay.
func (f *field) emitValue(e emitOptions) (any, bool) {
	switch f.kind {
	case mapField:
		m := make(map[string]any, len(f.children))
		for name, c := range f.children {
			if v, ok := c.emitValue(e); ok {
				m[name] = v
			}
		}
		return m, len(m) > 0 || f.explicit || e.keepMaps
	case listField:
		l := make([]any, 0, len(f.elements))
		for _, c := range f.elements {
			if v, ok := c.emitValue(e); ok {
				l = append(l, v)
			}
		}
		return l, true
	}
	return f.value, !(f.doubtful && e.drop(f))
}

// fieldPair is a doubtful field with the value of another object at the same place.
type fieldPair struct {
	*field
	otherValue any
	isPresent  bool
}

// collectDoubtful walks the doubtful fields in order, together with another object in which lists
// have the same elements.
func (f *field) collectDoubtful(other any, there bool, out []fieldPair) []fieldPair {
	switch f.kind {
	case mapField:
		m, _ := other.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(f.children)) {
			v, ok := m[name]
			out = f.children[name].collectDoubtful(v, there && ok, out)
		}
	case listField:
		l, _ := other.([]any)
		for i, c := range f.elements {
			if i < len(l) {
				out = c.collectDoubtful(l[i], there, out)
			} else {
				out = c.collectDoubtful(nil, false, out)
			}
		}
	default:
		if f.doubtful {
			out = append(out, fieldPair{f, other, there})
		}
	}
	return out
}
