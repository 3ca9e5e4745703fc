package script

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"

	"atoll.dev/atoll/internal/phrase"
)

// maxNesting of values of arguments and answers.
const maxNesting = 64

// Tables of an argument carry a mark of their type, so that an empty one keeps it. Scripts see
// no metatables; these hold nothing.
var listMark, objectMark = &lua.LTable{Metatable: lua.LNil}, &lua.LTable{Metatable: lua.LNil}

// conversionError is a value that cannot be converted, with its path.
type conversionError struct{ path, why string }

func (f *conversionError) Error() string {
	if f.path == "" {
		return f.why
	}
	return f.path + ": " + f.why
}

// luaImporter converts JSON values to Lua.
type luaImporter struct {
	L *lua.LState
	m *costMeter
}

func (c *luaImporter) importValue(v any, nesting int) (lua.LValue, error) {
	if nesting > maxNesting {
		return nil, &conversionError{why: fmt.Sprintf("is nested deeper than %d", maxNesting)}
	}
	switch v := v.(type) {
	case nil:
		return lua.LNil, nil
	case bool:
		return lua.LBool(v), nil
	case string:
		return lua.LString(v), nil
	case int64:
		return c.importNumber(v), nil
	case int32:
		return lua.LNumber(v), nil
	case int:
		return c.importNumber(int64(v)), nil
	case float64:
		return lua.LNumber(v), nil
	case map[string]any:
		return c.importObject(v, nesting)
	case []any:
		return c.importList(v, nesting)
	}
	return nil, &conversionError{why: fmt.Sprintf("holds a %T, which is no value of JSON", v)}
}

// importNumber records integers that float64 cannot hold, for luaExporter.
func (c *luaImporter) importNumber(n int64) lua.LValue {
	f := float64(n)
	if n > 1<<53 || n < -1<<53 {
		if c.m.bigIntegers == nil {
			c.m.bigIntegers = map[float64]bigInteger{}
		}
		before, there := c.m.bigIntegers[f]
		c.m.bigIntegers[f] = bigInteger{n: n, ambiguous: there && (before.ambiguous || before.n != n)}
	}
	return lua.LNumber(f)
}

func (c *luaImporter) importObject(v map[string]any, nesting int) (lua.LValue, error) {
	if why := c.m.spendCost(int64(len(v)), int64(2*tableBytes+len(v)*entryBytes)); why != "" {
		return nil, &conversionError{why: why}
	}
	t := c.L.CreateTable(0, len(v))
	t.Metatable = objectMark
	for _, key := range slices.Sorted(maps.Keys(v)) {
		e, err := c.importValue(v[key], nesting+1)
		if err != nil {
			return nil, err
		}
		t.RawSetString(key, e)
	}
	return t, nil
}

func (c *luaImporter) importList(v []any, nesting int) (lua.LValue, error) {
	if why := c.m.spendCost(int64(len(v)), int64(tableBytes+len(v)*placeBytes)); why != "" {
		return nil, &conversionError{why: why}
	}
	t := c.L.CreateTable(len(v), 0)
	t.Metatable = listMark
	for i, e := range v {
		made, err := c.importValue(e, nesting+1)
		if err != nil {
			return nil, err
		}
		if made == lua.LNil {
			c.m.emptySlots++
		}
		t.RawSetInt(i+1, made)
	}
	return t, nil
}

// luaExporter converts the answers of scripts to JSON values.
type luaExporter struct {
	m              *costMeter
	exportedValues int64
}

// omittedTable stands for an empty table whose type is unknown; the exporter leaves it out.
type omittedTable struct{}

// exportValue converts a value of an answer. like is the argument's value at the same place, or
// nil.
func (c *luaExporter) exportValue(v lua.LValue, like any, nesting int) (any, error) {
	c.exportedValues++
	switch v := v.(type) {
	case *lua.LNilType:
		return nil, nil
	case lua.LBool:
		return bool(v), nil
	case lua.LString:
		if why := c.m.spendCost(1, 16); why != "" {
			return nil, &conversionError{why: why}
		}
		if !utf8.ValidString(string(v)) {
			return nil, &conversionError{why: "is a string that is no UTF-8"}
		}
		return string(v), nil
	case lua.LNumber:
		return c.exportNumber(float64(v), like)
	case *lua.LTable:
		if nesting > maxNesting {
			return nil, &conversionError{why: fmt.Sprintf("is nested deeper than %d: does a table hold itself?", maxNesting)}
		}
		return c.exportTable(v, like, nesting)
	}
	return nil, &conversionError{why: "is a " + v.Type().String() + ", which is no value of JSON"}
}

func (c *luaExporter) exportNumber(f float64, like any) (any, error) {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return nil, &conversionError{why: "is a number that is infinite or none (x/0?)"}
	case f != math.Trunc(f):
		return f, nil
	case math.Abs(f) < 1<<53:
		return int64(f), nil
	}
	if n, ok := like.(int64); ok && float64(n) == f {
		return n, nil
	}
	if big, ok := c.m.bigIntegers[f]; ok && !big.ambiguous {
		return big.n, nil
	}
	if f >= -1<<63 && f < 1<<63 {
		return int64(f), nil
	}
	return f, nil
}

func (c *luaExporter) exportTable(t *lua.LTable, like any, nesting int) (any, error) {
	// Emptied slots are searched too, each time that the exporter meets the table.
	if why := c.m.spendCost(int64(listSlots(t))/8, 0); why != "" {
		return nil, &conversionError{why: why}
	}
	n, keys := t.MaxN(), 0
	var odd lua.LValue // the first key that is neither a place of a list nor a text
	if keySlots(t) > 0 {
		for k, _ := t.Next(listEndKey(t)); k != lua.LNil; k, _ = t.Next(k) {
			if keys++; odd == nil && k.Type() != lua.LTString {
				odd = k
			}
		}
	}
	if why := c.m.spendCost(int64(1+keySlots(t)), int64(128+n*placeBytes+keys*128)); why != "" {
		return nil, &conversionError{why: why}
	}
	switch {
	case odd != nil:
		return nil, &conversionError{why: fmt.Sprintf("is a table with the key %s, which neither lists nor objects have", describeValue(odd))}
	case n > 0 && keys > 0:
		return nil, &conversionError{why: "is a table with both places of a list and keys of an object"}
	case n > 0:
		return c.exportList(t, n, like, nesting)
	case keys > 0:
		return c.exportObject(t, like, nesting)
	}
	return c.exportEmptyTable(t, like), nil
}

// listEndKey returns the key after which Next returns keys that are no slots of the list.
func listEndKey(t *lua.LTable) lua.LValue {
	if n := listSlots(t); n > 0 {
		return lua.LNumber(n)
	}
	return lua.LNil
}

// exportEmptyTable returns an empty list or object: of the table's own type, or else of the
// argument's type at its place.
func (c *luaExporter) exportEmptyTable(t *lua.LTable, like any) any {
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
	return omittedTable{}
}

func (c *luaExporter) exportList(t *lua.LTable, n int, like any, nesting int) (any, error) {
	before, _ := like.([]any)
	out := make([]any, 0, n)
	for i := range n {
		e := t.RawGetInt(i + 1)
		if e == lua.LNil {
			return nil, &conversionError{path: "[" + strconv.Itoa(i) + "]", why: "is nil amid a list"}
		}
		var was any
		if i < len(before) {
			was = before[i]
		}
		v, err := c.exportValue(e, was, nesting+1)
		if err != nil {
			return nil, wrapFieldError("["+strconv.Itoa(i)+"]", err)
		}
		if v == (any)(omittedTable{}) {
			v = map[string]any{} // lists of lists are rare
		}
		out = append(out, v)
	}
	return out, nil
}

func (c *luaExporter) exportObject(t *lua.LTable, like any, nesting int) (any, error) {
	before, _ := like.(map[string]any)
	out := map[string]any{}
	for k, e := t.Next(listEndKey(t)); k != lua.LNil; k, e = t.Next(k) {
		name := string(k.(lua.LString))
		if !utf8.ValidString(name) {
			return nil, &conversionError{path: strconv.Quote(phrase.CutText(name, 40)), why: "is a key that is no UTF-8"}
		}
		v, err := c.exportValue(e, before[name], nesting+1)
		if err != nil {
			return nil, wrapFieldError(name, err)
		}
		if _, left := v.(omittedTable); !left {
			out[name] = v
		}
	}
	return out, nil
}

// wrapFieldError prepends a field to the path of the error.
func wrapFieldError(name string, err error) error {
	f, ok := err.(*conversionError)
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
	return &conversionError{path: path + f.path, why: f.why}
}
