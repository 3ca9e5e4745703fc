package script

import (
	"math"
	"reflect"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What a table, a place in it and a function take at most, in bytes, as measured.
const (
	tableBytes    = 320
	firstBytes    = 2600 // the first key of a table that was made without room for any
	entryBytes    = 200
	manyKeys      = 64 // of a table, from which on it grows by more than half of it
	placeBytes    = 48
	functionBytes = 512
	tailBytes     = 192
	textBytes     = 48
)

// operationValues are in the order of operations.
var operationValues = values(opAdd, opSub, opMul, opDiv, opMod, opPow, opUnm, opConcat, opLen, opGet, opSet,
	opEq, opLt, opLe, opNew, opTable, opFunction, opAll, opTail)

// values that are functions of Go. They hold no state, and so all scripts share them.
func values(fs ...lua.LGFunction) []lua.LValue {
	out := make([]lua.LValue, 0, len(fs))
	for _, f := range fs {
		out = append(out, &lua.LFunction{IsG: true, GFunction: f})
	}
	return out
}

// maxNumeral is the longest text that may be a number, spaces around it included, in bytes.
const maxNumeral = 256

// numeral of a text as Lua reads it; long texts are none. Where the last bit of a fraction is
// hard to tell, it takes long to read.
func numeral(L *lua.LState, s string) (lua.LNumber, bool) {
	if len(s) > maxNumeral {
		return 0, false
	}
	if s = strings.TrimSpace(s); len(s) > 64 || s == "" {
		return 0, false
	}
	if len(s) > 19 || strings.ContainsAny(s, "eE") {
		charge(L, 400, 256)
	}
	if n, err := strconv.ParseInt(s, 0, 64); err == nil && !strings.ContainsAny(s, "_oObB") {
		if s[0] == '0' || strings.HasPrefix(s, "-0") {
			if f, err := strconv.ParseFloat(s, 64); err == nil && !strings.ContainsAny(s, "xX") {
				return lua.LNumber(f), true // leading zeros are decimal in Lua
			}
		}
		return lua.LNumber(n), true
	}
	if strings.ContainsAny(s, "_nNpP") { // infinity, NaN and what Go alone reads
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return lua.LNumber(f), err == nil
}

func operand(L *lua.LState, i int) float64 {
	v := L.Get(i)
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v)
	case lua.LString:
		if n, ok := numeral(L, string(v)); ok {
			return float64(n)
		}
	}
	L.RaiseError("arithmetic with a %s", described(v))
	return 0
}

// described value, for an error.
func described(v lua.LValue) string {
	switch v := v.(type) {
	case *lua.LNilType:
		return "nil"
	case lua.LString:
		return "string " + strconv.Quote(cut(string(v), 40))
	}
	return v.Type().String()
}

func push(L *lua.LState, f float64) int {
	L.Push(lua.LNumber(f))
	return 1
}

func opAdd(L *lua.LState) int { return push(L, operand(L, 1)+operand(L, 2)) }
func opSub(L *lua.LState) int { return push(L, operand(L, 1)-operand(L, 2)) }
func opMul(L *lua.LState) int { return push(L, operand(L, 1)*operand(L, 2)) }
func opDiv(L *lua.LState) int { return push(L, operand(L, 1)/operand(L, 2)) }
func opPow(L *lua.LState) int { return push(L, math.Pow(operand(L, 1), operand(L, 2))) }
func opUnm(L *lua.LState) int { return push(L, -operand(L, 1)) }

func opMod(L *lua.LState) int {
	a, b := operand(L, 1), operand(L, 2)
	v := remainder(L, a, b)
	if b > 0 && v < 0 || b < 0 && v > 0 {
		v += b
	}
	return push(L, v)
}

// remainder of a division, found bit by bit: it takes as long as the exponents are apart.
func remainder(L *lua.LState, a, b float64) float64 {
	_, x := math.Frexp(a)
	_, y := math.Frexp(b)
	charge(L, int64(max(0, x-y))/4, 0)
	return math.Mod(a, b)
}

func opConcat(L *lua.LState) int {
	n := L.GetTop()
	parts, size := make([]string, 0, 8), 0
	for i := 1; i <= n; i++ {
		s, ok := textual(L, L.Get(i))
		if !ok {
			L.RaiseError("a %s is joined to a text", described(L.Get(i)))
		}
		parts, size = append(parts, s), size+len(s)
	}
	charge(L, int64(size)/64, int64(size+textBytes))
	L.Push(lua.LString(strings.Join(parts, "")))
	return 1
}

// textual value: a text or a number, whose digits are to be found.
func textual(L *lua.LState, v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		charge(L, 10, textBytes)
		return v.String(), true
	}
	return "", false
}

func opLen(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		return push(L, float64(len(v)))
	case *lua.LTable:
		charge(L, meterOf(L).holes/8, 0)
		return push(L, float64(v.Len()))
	}
	L.RaiseError("the length of a %s is asked for", described(L.Get(1)))
	return 0
}

func opGet(L *lua.LState) int {
	key := L.Get(2)
	if s, ok := key.(lua.LString); ok {
		chargeText(L, len(s))
	}
	if t, ok := L.Get(1).(*lua.LTable); ok {
		L.Push(t.RawGet(key))
		return 1
	}
	if _, ok := L.Get(1).(lua.LString); !ok {
		L.RaiseError("a field %s of a %s is read", described(key), described(L.Get(1)))
	}
	L.Push(L.GetTable(L.Get(1), key))
	return 1
}

func opSet(L *lua.LState) int {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		L.RaiseError("a field %s of a %s is set", described(L.Get(2)), described(L.Get(1)))
	}
	set(L, t, L.Get(2), L.Get(3))
	return 0
}

// set a field of a table, which is paid for where it makes the table grow.
func set(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	m := meterOf(L)
	switch key := key.(type) {
	case lua.LString:
		chargeText(L, len(key))
	case lua.LNumber:
		f := float64(key)
		if f != f {
			L.RaiseError("a field is set whose key is not a number (0/0)")
		}
		if have := places(t); f >= 1 && f == math.Trunc(f) && f < float64(lua.MaxArrayIndex) {
			switch gap := int64(f) - 1 - int64(have); {
			case gap < 0 && value == lua.LNil:
				m.holes++
			case gap >= 0 && value == lua.LNil:
				return // it is nil already; setting it would make the places before it
			case gap == 0 && have == 0:
				charge(L, 1, firstBytes)
			case gap == 0:
				charge(L, 1, placeBytes)
			case gap > 0: // the list grows place by place
				charge(L, 1+gap/16, 2*(gap+1)*placeBytes)
				m.holes += gap
			}
			t.RawSet(key, value)
			return
		}
	case *lua.LNilType:
		L.RaiseError("a field is set whose key is nil")
	}
	switch old := t.RawGet(key); {
	case old == lua.LNil && value == lua.LNil:
		return
	case value == lua.LNil:
		m.holes++
	case old == lua.LNil && keysOf(t) == 0:
		charge(L, 1, firstBytes)
	case old == lua.LNil && keysOf(t) < manyKeys:
		charge(L, 1, entryBytes)
	case old == lua.LNil:
		charge(L, 1, 2*entryBytes)
	}
	t.RawSet(key, value)
}

// places of a table's list, empty ones too, and keys that it had: the virtual machine
// tells nobody, and searches them all.
func places(t *lua.LTable) int { return reflect.ValueOf(t).Elem().Field(fieldArray).Len() }

func keysOf(t *lua.LTable) int { return reflect.ValueOf(t).Elem().Field(fieldKeys).Len() }

var fieldArray, fieldKeys = fieldOfTable("array"), fieldOfTable("keys")

func fieldOfTable(name string) int {
	f, ok := reflect.TypeFor[lua.LTable]().FieldByName(name)
	if !ok || f.Type.Kind() != reflect.Slice {
		panic("script: tables of the virtual machine have no slice " + name + " any more")
	}
	return f.Index[0]
}

func opEq(L *lua.LState) int {
	a, aText := L.Get(1).(lua.LString)
	b, bText := L.Get(2).(lua.LString)
	if aText && bText && len(a) == len(b) {
		chargeText(L, len(a))
	}
	L.Push(lua.LBool(L.RawEqual(L.Get(1), L.Get(2))))
	return 1
}

func opLt(L *lua.LState) int {
	L.Push(lua.LBool(less(L, L.Get(1), L.Get(2))))
	return 1
}

func opLe(L *lua.LState) int {
	L.Push(lua.LBool(!less(L, L.Get(2), L.Get(1)) && !nan(L.Get(1)) && !nan(L.Get(2))))
	return 1
}

func nan(v lua.LValue) bool { n, ok := v.(lua.LNumber); return ok && n != n }

func less(L *lua.LState, a, b lua.LValue) bool {
	if x, ok := a.(lua.LNumber); ok {
		if y, ok := b.(lua.LNumber); ok {
			return x < y
		}
	}
	x, xText := a.(lua.LString)
	y, yText := b.(lua.LString)
	if !xText || !yText {
		L.RaiseError("a %s is compared with a %s", described(a), described(b))
	}
	chargeText(L, min(len(x), len(y)))
	return x < y
}

func opNew(L *lua.LState) int {
	charge(L, 0, tableBytes)
	L.Push(L.CreateTable(0, 0))
	return 1
}

func opTable(L *lua.LState) int {
	t := L.Get(1).(*lua.LTable)
	have, n := places(t), L.GetTop()
	bytes := tableBytes + have*placeBytes
	if n := keysOf(t); n > 0 {
		bytes += tableBytes + n*entryBytes
	}
	charge(L, int64(have)/8, int64(bytes))
	for i := 1; i <= have; i++ {
		if t.RawGetInt(i) == lua.LNil {
			meterOf(L).holes++
		}
	}
	for i := 2; i < n; i += 2 {
		set(L, t, L.Get(i), L.Get(i+1))
	}
	L.Push(t)
	return 1
}

func opFunction(L *lua.LState) int {
	charge(L, 1, functionBytes)
	L.Push(L.Get(1))
	return 1
}

// opAll gives all that it is given.
func opAll(L *lua.LState) int {
	n := L.GetTop()
	charge(L, int64(n)/8, 0)
	return n
}

func opTail(L *lua.LState) int {
	charge(L, 0, tailBytes)
	return 0
}
