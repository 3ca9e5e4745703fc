package userfields

import (
	"maps"
	"slices"
)

// fieldNode is a node of a template while its stated fields are found.
type fieldNode struct {
	value    any // of scalars, of lists of scalars, and of empty maps and lists
	children map[string]*fieldNode
	elements []*fieldNode
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

// fieldOwnership is what is known about the owners of one field.
type fieldOwnership struct {
	*ownerTree
	// isOwnedAbove: any user owns a field above as a whole.
	isOwnedAbove bool
	// last is the field's value in the last-applied annotation.
	last    any
	hasLast bool
}

func (o fieldOwnership) isSetByApply() bool { return o.hasLast || o.ownerTree != nil && o.applied }
func (o fieldOwnership) isDoubtful() bool   { return o.isOwnedAbove || o.isOwned() }

// isOwnedWhole returns whether everything below is owned because this field is.
func (o fieldOwnership) isOwnedWhole() bool { return o.isOwnedAbove || o.isOwned() && o.isLeaf() }

func (o fieldOwnership) childOwnership(name string) fieldOwnership {
	c := fieldOwnership{ownerTree: o.childField(name), isOwnedAbove: o.isOwnedWhole()}
	if m, ok := o.last.(map[string]any); ok && o.hasLast {
		c.last, c.hasLast = m[name]
	}
	return c
}

// findUserFields returns the part of the value that was stated, or may have been stated; nil for
// nothing.
func findUserFields(value any, o fieldOwnership) *fieldNode {
	switch v := value.(type) {
	case map[string]any:
		return userFieldsOfMap(v, o)
	case []any:
		return userFieldsOfList(v, o)
	}
	return userFieldOfLeaf(value, o)
}

func userFieldOfLeaf(value any, o fieldOwnership) *fieldNode {
	if o.isSetByApply() || o.isDoubtful() {
		return &fieldNode{value: value, explicit: o.isSetByApply(), doubtful: !o.isSetByApply()}
	}
	return nil
}

func userFieldsOfMap(m map[string]any, o fieldOwnership) *fieldNode {
	if len(m) == 0 {
		return userFieldOfLeaf(m, o)
	}
	f := &fieldNode{kind: mapField, explicit: o.isSetByApply(), children: map[string]*fieldNode{}}
	for name, v := range m {
		if name == "creationTimestamp" && v == nil {
			continue
		}
		if c := findUserFields(v, o.childOwnership(name)); c != nil {
			f.children[name] = c
		}
	}
	if len(f.children) == 0 && !f.explicit {
		return nil
	}
	return f
}

func userFieldsOfList(l []any, o fieldOwnership) *fieldNode {
	if o.ownerTree != nil && (len(o.keyed) > 0 || len(o.values) > 0) {
		return userFieldsOfKeyedList(l, o)
	}
	if !o.isSetByApply() && !o.isDoubtful() {
		return nil
	}
	if len(l) == 0 || !areAllMaps(l) {
		return userFieldOfLeaf(l, o)
	}
	f := &fieldNode{kind: listField, explicit: true}
	last, _ := o.last.([]any)
	for i, e := range l {
		below := fieldOwnership{isOwnedAbove: true}
		if o.hasLast && len(last) == len(l) {
			below.last, below.hasLast = last[i], true
		} else if o.hasLast {
			below.last, below.hasLast = e, true
		}
		f.elements = append(f.elements, userFieldsOfElement(e, below, nil))
	}
	return f
}

// userFieldsOfKeyedList handles lists whose elements are owned one by one.
func userFieldsOfKeyedList(l []any, o fieldOwnership) *fieldNode {
	f := &fieldNode{kind: listField, explicit: o.isSetByApply()}
	last, _ := o.last.([]any)
	for _, e := range l {
		if m, isMap := e.(map[string]any); isMap {
			if c := userFieldsOfMapElement(m, o, last); c != nil {
				f.elements = append(f.elements, c)
			}
		} else if own := o.findValue(e); o.isOwnedAbove || own.isOwned() || o.hasLast && containsJSON(last, e) {
			f.elements = append(f.elements, &fieldNode{value: e, explicit: true})
		}
	}
	if len(f.elements) == 0 && !f.explicit {
		return nil
	}
	f.explicit = true
	return f
}

// userFieldsOfMapElement handles a map in a list whose elements are owned one by one. It returns nil where
// the user did not set the element. last is the list as last applied.
func userFieldsOfMapElement(m map[string]any, o fieldOwnership, last []any) *fieldNode {
	k := o.findElement(m)
	below := fieldOwnership{isOwnedAbove: o.isOwnedAbove}
	var key map[string]any
	if k != nil {
		below.ownerTree, key = k.ownerTree, k.key
		below.last, below.hasLast = findByKey(last, key)
	} else if !o.isOwnedAbove {
		return nil
	}
	if c := userFieldsOfElement(m, below, key); len(c.children) > len(key) || below.isOwned() || below.hasLast || o.isOwnedAbove {
		return c
	}
	return nil
}

// userFieldsOfElement keeps the element and the fields that identify it.
func userFieldsOfElement(e any, o fieldOwnership, key map[string]any) *fieldNode {
	f := findUserFields(e, o)
	if f == nil || f.kind != mapField {
		if len(key) == 0 {
			return &fieldNode{value: map[string]any{}, explicit: true}
		}
		f = &fieldNode{kind: mapField, children: map[string]*fieldNode{}}
	}
	for name, v := range key {
		f.children[name] = &fieldNode{value: v, explicit: true}
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
	drop     func(*fieldNode) bool
	keepMaps bool
}

// buildKeptValue returns the JSON value of the fields that stay.
func (f *fieldNode) buildKeptValue(e emitOptions) (any, bool) {
	switch f.kind {
	case mapField:
		m := make(map[string]any, len(f.children))
		for name, c := range f.children {
			if v, ok := c.buildKeptValue(e); ok {
				m[name] = v
			}
		}
		return m, len(m) > 0 || f.explicit || e.keepMaps
	case listField:
		l := make([]any, 0, len(f.elements))
		for _, c := range f.elements {
			if v, ok := c.buildKeptValue(e); ok {
				l = append(l, v)
			}
		}
		return l, true
	}
	return f.value, !(f.doubtful && e.drop(f))
}

// fieldPair is a doubtful field with the value of another object at the same place.
type fieldPair struct {
	*fieldNode
	otherValue any
	isPresent  bool
}

// pairDoubtfulFields walks the doubtful fields in order, together with another object in which lists
// have the same elements.
func (f *fieldNode) pairDoubtfulFields(other any, there bool, out []fieldPair) []fieldPair {
	switch f.kind {
	case mapField:
		m, _ := other.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(f.children)) {
			v, ok := m[name]
			out = f.children[name].pairDoubtfulFields(v, there && ok, out)
		}
	case listField:
		l, _ := other.([]any)
		for i, c := range f.elements {
			if i < len(l) {
				out = c.pairDoubtfulFields(l[i], there, out)
			} else {
				out = c.pairDoubtfulFields(nil, false, out)
			}
		}
	default:
		if f.doubtful {
			out = append(out, fieldPair{f, other, there})
		}
	}
	return out
}
