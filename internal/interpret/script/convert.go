package script

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

// maxNesting of values that go in and out.
const maxNesting = 64

// Tables that came from an argument carry a mark of what they were there, so that they
// stay it when they are empty. Scripts do not see metatables; these hold nothing.
var listMark, objectMark = &lua.LTable{Metatable: lua.LNil}, &lua.LTable{Metatable: lua.LNil}

// fault in a value, and where.
type fault struct{ path, why string }

func (f *fault) Error() string {
	if f.path == "" {
		return f.why
	}
	return f.path + ": " + f.why
}

// importer makes tables of values of JSON.
type importer struct {
	L *lua.LState
	m *meter
}

func (c *importer) value(v any, nesting int) (lua.LValue, error) {
	if nesting > maxNesting {
		return nil, &fault{why: fmt.Sprintf("is nested deeper than %d", maxNesting)}
	}
	switch v := v.(type) {
	case nil:
		return lua.LNil, nil
	case bool:
		return lua.LBool(v), nil
	case string:
		return lua.LString(v), nil
	case int64:
		return c.number(v), nil
	case int32:
		return lua.LNumber(v), nil
	case int:
		return c.number(int64(v)), nil
	case float64:
		return lua.LNumber(v), nil
	case map[string]any:
		return c.object(v, nesting)
	case []any:
		return c.list(v, nesting)
	}
	return nil, &fault{why: fmt.Sprintf("holds a %T, which is no value of JSON", v)}
}

// number that comes back as what it was, though float64 cannot hold it.
func (c *importer) number(n int64) lua.LValue {
	f := float64(n)
	if n > 1<<53 || n < -1<<53 {
		if c.m.big == nil {
			c.m.big = map[float64]bigNumber{}
		}
		before, there := c.m.big[f]
		c.m.big[f] = bigNumber{n: n, ambiguous: there && (before.ambiguous || before.n != n)}
	}
	return lua.LNumber(f)
}

func (c *importer) object(v map[string]any, nesting int) (lua.LValue, error) {
	if why := c.m.pay(int64(len(v)), int64(2*tableBytes+len(v)*entryBytes)); why != "" {
		return nil, &fault{why: why}
	}
	t := c.L.CreateTable(0, len(v))
	t.Metatable = objectMark
	for _, key := range slices.Sorted(maps.Keys(v)) {
		e, err := c.value(v[key], nesting+1)
		if err != nil {
			return nil, err
		}
		t.RawSetString(key, e)
	}
	return t, nil
}

func (c *importer) list(v []any, nesting int) (lua.LValue, error) {
	if why := c.m.pay(int64(len(v)), int64(tableBytes+len(v)*placeBytes)); why != "" {
		return nil, &fault{why: why}
	}
	t := c.L.CreateTable(len(v), 0)
	t.Metatable = listMark
	for i, e := range v {
		made, err := c.value(e, nesting+1)
		if err != nil {
			return nil, err
		}
		if made == lua.LNil {
			c.m.holes++
		}
		t.RawSetInt(i+1, made)
	}
	return t, nil
}

// exporter makes values of JSON of what a script answers.
type exporter struct {
	m    *meter
	made int64 // values
}

// left out: an empty table of which nothing says whether it is a list or an object.
type leftOut struct{}

// value of what a script answered; like is what an argument has in its place, or nil.
func (c *exporter) value(v lua.LValue, like any, nesting int) (any, error) {
	c.made++
	switch v := v.(type) {
	case *lua.LNilType:
		return nil, nil
	case lua.LBool:
		return bool(v), nil
	case lua.LString:
		if why := c.m.pay(1, 16); why != "" {
			return nil, &fault{why: why}
		}
		if !utf8.ValidString(string(v)) {
			return nil, &fault{why: "is a string that is no UTF-8"}
		}
		return string(v), nil
	case lua.LNumber:
		return c.number(float64(v), like)
	case *lua.LTable:
		if nesting > maxNesting {
			return nil, &fault{why: fmt.Sprintf("is nested deeper than %d: does a table hold itself?", maxNesting)}
		}
		return c.table(v, like, nesting)
	}
	return nil, &fault{why: "is a " + v.Type().String() + ", which is no value of JSON"}
}

func (c *exporter) number(f float64, like any) (any, error) {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return nil, &fault{why: "is a number that is infinite or none (x/0?)"}
	case f != math.Trunc(f):
		return f, nil
	case math.Abs(f) < 1<<53:
		return int64(f), nil
	}
	if n, ok := like.(int64); ok && float64(n) == f {
		return n, nil
	}
	if big, ok := c.m.big[f]; ok && !big.ambiguous {
		return big.n, nil
	}
	if f >= -1<<63 && f < 1<<63 {
		return int64(f), nil
	}
	return f, nil
}

func (c *exporter) table(t *lua.LTable, like any, nesting int) (any, error) {
	// Places that were emptied are searched too, each time that the table is met.
	if why := c.m.pay(int64(places(t))/8, 0); why != "" {
		return nil, &fault{why: why}
	}
	n, keys := t.MaxN(), 0
	var odd lua.LValue // the first key that is neither a place of a list nor a text
	if keysOf(t) > 0 {
		for k, _ := t.Next(afterList(t)); k != lua.LNil; k, _ = t.Next(k) {
			if keys++; odd == nil && k.Type() != lua.LTString {
				odd = k
			}
		}
	}
	if why := c.m.pay(int64(1+keysOf(t)), int64(128+n*placeBytes+keys*128)); why != "" {
		return nil, &fault{why: why}
	}
	switch {
	case odd != nil:
		return nil, &fault{why: fmt.Sprintf("is a table with the key %s, which neither lists nor objects have", described(odd))}
	case n > 0 && keys > 0:
		return nil, &fault{why: "is a table with both places of a list and keys of an object"}
	case n > 0:
		return c.list(t, n, like, nesting)
	case keys > 0:
		return c.object(t, like, nesting)
	}
	return c.empty(t, like), nil
}

// afterList is what to give Next for the first key that is no place of the list.
func afterList(t *lua.LTable) lua.LValue {
	if n := places(t); n > 0 {
		return lua.LNumber(n)
	}
	return lua.LNil
}

// empty table: what it was, else what the argument has in its place.
func (c *exporter) empty(t *lua.LTable, like any) any {
	_, list := like.([]any)
	_, object := like.(map[string]any)
	switch {
	case t.Metatable == lua.LValue(listMark):
		return []any{}
	case t.Metatable == lua.LValue(objectMark):
		return map[string]any{}
	case list:
		return []any{}
	case object:
		return map[string]any{}
	}
	return leftOut{}
}

func (c *exporter) list(t *lua.LTable, n int, like any, nesting int) (any, error) {
	before, _ := like.([]any)
	out := make([]any, 0, n)
	for i := range n {
		e := t.RawGetInt(i + 1)
		if e == lua.LNil {
			return nil, &fault{path: "[" + strconv.Itoa(i) + "]", why: "is nil amid a list"}
		}
		var was any
		if i < len(before) {
			was = before[i]
		}
		v, err := c.value(e, was, nesting+1)
		if err != nil {
			return nil, within("["+strconv.Itoa(i)+"]", err)
		}
		if v == (any)(leftOut{}) {
			v = map[string]any{} // lists of lists are rare
		}
		out = append(out, v)
	}
	return out, nil
}

func (c *exporter) object(t *lua.LTable, like any, nesting int) (any, error) {
	before, _ := like.(map[string]any)
	out := map[string]any{}
	for k, e := t.Next(afterList(t)); k != lua.LNil; k, e = t.Next(k) {
		name := string(k.(lua.LString))
		if !utf8.ValidString(name) {
			return nil, &fault{path: strconv.Quote(cut(name, 40)), why: "is a key that is no UTF-8"}
		}
		v, err := c.value(e, before[name], nesting+1)
		if err != nil {
			return nil, within(name, err)
		}
		if _, left := v.(leftOut); !left {
			out[name] = v
		}
	}
	return out, nil
}

// within a field.
func within(name string, err error) error {
	f, ok := err.(*fault)
	if !ok {
		return err
	}
	if len(f.path) > 300 {
		return f
	}
	path := name
	if f.path != "" && f.path[0] != '[' {
		path += "."
	}
	return &fault{path: path + f.path, why: f.why}
}

// cut to at most n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
