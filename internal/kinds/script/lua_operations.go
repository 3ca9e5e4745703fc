package script

import (
	"math"
	"reflect"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"atoll.dev/atoll/internal/phrase"
)

// The largest size of a table, a place in it and a function, in bytes, as measured.
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

// operationValues are in the order of operationNames.
var operationValues = goFunctions(opAdd, opSub, opMul, opDiv, opMod, opPow, opUnm, opConcat, opLen, opGet, opSet,
	opEq, opLt, opLe, opNewTable, opTable, opFunction, opReturnArgs, opTail)

// goFunctions returns functions of Go as values. They hold no state, so all scripts share them.
func goFunctions(fs ...lua.LGFunction) []lua.LValue {
	out := make([]lua.LValue, 0, len(fs))
	for _, f := range fs {
		out = append(out, &lua.LFunction{IsG: true, GFunction: f})
	}
	return out
}

// maxNumeral is the longest text that can be a number, in bytes, with the spaces around it.
const maxNumeral = 256

// parseNumeral reads a number as Lua does; ok is false for long texts. It charges for numerals
// whose last bit is expensive to find.
func parseNumeral(L *lua.LState, s string) (lua.LNumber, bool) {
	if len(s) > maxNumeral {
		return 0, false
	}
	if s = strings.TrimSpace(s); len(s) > 64 || s == "" {
		return 0, false
	}
	if len(s) > 19 || strings.ContainsAny(s, "eE") {
		chargeCost(L, 400, 256)
	}
	if n, ok := parseInteger(s); ok {
		return n, true
	}
	if strings.ContainsAny(s, "_nNpP") { // infinity, NaN and forms of Go alone
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return lua.LNumber(f), err == nil
}

func parseInteger(s string) (lua.LNumber, bool) {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil || strings.ContainsAny(s, "_oObB") {
		return 0, false
	}
	if (s[0] == '0' || strings.HasPrefix(s, "-0")) && !strings.ContainsAny(s, "xX") {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return lua.LNumber(f), true // leading zeros are decimal in Lua
		}
	}
	return lua.LNumber(n), true
}

func numberArg(L *lua.LState, i int) float64 {
	v := L.Get(i)
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v)
	case lua.LString:
		if n, ok := parseNumeral(L, string(v)); ok {
			return float64(n)
		}
	}
	L.RaiseError("arithmetic with a %s", describeValue(v))
	return 0
}

// describeValue names a value for an error.
func describeValue(v lua.LValue) string {
	switch v := v.(type) {
	case *lua.LNilType:
		return "nil"
	case lua.LString:
		return "string " + strconv.Quote(phrase.CutText(string(v), 40))
	}
	return v.Type().String()
}

func pushNumber(L *lua.LState, f float64) int {
	L.Push(lua.LNumber(f))
	return 1
}

func opAdd(L *lua.LState) int { return pushNumber(L, numberArg(L, 1)+numberArg(L, 2)) }
func opSub(L *lua.LState) int { return pushNumber(L, numberArg(L, 1)-numberArg(L, 2)) }
func opMul(L *lua.LState) int { return pushNumber(L, numberArg(L, 1)*numberArg(L, 2)) }
func opDiv(L *lua.LState) int { return pushNumber(L, numberArg(L, 1)/numberArg(L, 2)) }
func opPow(L *lua.LState) int { return pushNumber(L, math.Pow(numberArg(L, 1), numberArg(L, 2))) }
func opUnm(L *lua.LState) int { return pushNumber(L, -numberArg(L, 1)) }

func opMod(L *lua.LState) int {
	a, b := numberArg(L, 1), numberArg(L, 2)
	v := floatRemainder(L, a, b)
	if b > 0 && v < 0 || b < 0 && v > 0 {
		v += b
	}
	return pushNumber(L, v)
}

// floatRemainder charges by the distance of the exponents, since the remainder is found bit by
// bit.
func floatRemainder(L *lua.LState, a, b float64) float64 {
	_, x := math.Frexp(a)
	_, y := math.Frexp(b)
	chargeCost(L, int64(max(0, x-y))/4, 0)
	return math.Mod(a, b)
}

func opConcat(L *lua.LState) int {
	n := L.GetTop()
	parts, size := make([]string, 0, 8), 0
	for i := 1; i <= n; i++ {
		s, ok := stringValue(L, L.Get(i))
		if !ok {
			L.RaiseError("a %s is joined to a text", describeValue(L.Get(i)))
		}
		parts, size = append(parts, s), size+len(s)
	}
	chargeCost(L, int64(size)/64, int64(size+textBytes))
	L.Push(lua.LString(strings.Join(parts, "")))
	return 1
}

// stringValue returns a text, or the digits of a number.
func stringValue(L *lua.LState, v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		chargeCost(L, 10, textBytes)
		return v.String(), true
	}
	return "", false
}

func opLen(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		return pushNumber(L, float64(len(v)))
	case *lua.LTable:
		chargeCost(L, meterOf(L).emptySlots/8, 0)
		return pushNumber(L, float64(v.Len()))
	}
	L.RaiseError("a %s has no length", describeValue(L.Get(1)))
	return 0
}

func opGet(L *lua.LState) int {
	key := L.Get(2)
	if s, ok := key.(lua.LString); ok {
		chargeString(L, len(s))
	}
	if t, ok := L.Get(1).(*lua.LTable); ok {
		L.Push(t.RawGet(key))
		return 1
	}
	if _, ok := L.Get(1).(lua.LString); !ok {
		L.RaiseError("a field %s of a %s is read", describeValue(key), describeValue(L.Get(1)))
	}
	L.Push(L.GetTable(L.Get(1), key))
	return 1
}

func opSet(L *lua.LState) int {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		L.RaiseError("a field %s of a %s is set", describeValue(L.Get(2)), describeValue(L.Get(1)))
	}
	setField(L, t, L.Get(2), L.Get(3))
	return 0
}

// setField sets a field of a table and charges for the growth of the table.
func setField(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	switch key := key.(type) {
	case lua.LString:
		chargeString(L, len(key))
	case lua.LNumber:
		f := float64(key)
		if f != f {
			L.RaiseError("a field is set whose key is not a number (0/0)")
		}
		if f >= 1 && f == math.Trunc(f) && f < float64(lua.MaxArrayIndex) {
			setListSlot(L, t, key, value)
			return
		}
	case *lua.LNilType:
		L.RaiseError("a field is set whose key is nil")
	}
	setKey(L, t, key, value)
}

func setKey(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	switch old := t.RawGet(key); {
	case old == lua.LNil && value == lua.LNil:
		return
	case value == lua.LNil:
		meterOf(L).emptySlots++
	case old == lua.LNil && keySlots(t) == 0:
		chargeCost(L, 1, firstBytes)
	case old == lua.LNil && keySlots(t) < manyKeys:
		chargeCost(L, 1, entryBytes)
	case old == lua.LNil:
		chargeCost(L, 1, 2*entryBytes)
	}
	t.RawSet(key, value)
}

func setListSlot(L *lua.LState, t *lua.LTable, slot lua.LNumber, value lua.LValue) {
	have := listSlots(t)
	gap := int64(slot) - 1 - int64(have)
	switch {
	case gap < 0:
		if value == lua.LNil {
			meterOf(L).emptySlots++
		}
	case value == lua.LNil:
		return // it is nil already, and the slots before it would be made
	case gap == 0 && have == 0:
		chargeCost(L, 1, firstBytes)
	case gap == 0:
		chargeCost(L, 1, placeBytes)
	default: // the list grows slot by slot
		chargeCost(L, 1+gap/16, 2*(gap+1)*placeBytes)
		meterOf(L).emptySlots += gap
	}
	t.RawSet(slot, value)
}

// listSlots counts the slots of a table's list, empty ones included; keySlots counts all keys
// that the table ever had. The virtual machine searches them all and has no accessor.
func listSlots(t *lua.LTable) int { return reflect.ValueOf(t).Elem().Field(fieldArray).Len() }

func keySlots(t *lua.LTable) int { return reflect.ValueOf(t).Elem().Field(fieldKeys).Len() }

var fieldArray, fieldKeys = findTableStructField("array"), findTableStructField("keys")

func findTableStructField(name string) int {
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
		chargeString(L, len(a))
	}
	L.Push(lua.LBool(L.RawEqual(L.Get(1), L.Get(2))))
	return 1
}

func opLt(L *lua.LState) int {
	L.Push(lua.LBool(lessThan(L, L.Get(1), L.Get(2))))
	return 1
}

func opLe(L *lua.LState) int {
	L.Push(lua.LBool(!lessThan(L, L.Get(2), L.Get(1)) && !isNaN(L.Get(1)) && !isNaN(L.Get(2))))
	return 1
}

func isNaN(v lua.LValue) bool { n, ok := v.(lua.LNumber); return ok && n != n }

func lessThan(L *lua.LState, a, b lua.LValue) bool {
	if x, ok := a.(lua.LNumber); ok {
		if y, ok := b.(lua.LNumber); ok {
			return x < y
		}
	}
	x, xText := a.(lua.LString)
	y, yText := b.(lua.LString)
	if !xText || !yText {
		L.RaiseError("a %s is compared with a %s", describeValue(a), describeValue(b))
	}
	chargeString(L, min(len(x), len(y)))
	return x < y
}

func opNewTable(L *lua.LState) int {
	chargeCost(L, 0, tableBytes)
	L.Push(L.CreateTable(0, 0))
	return 1
}

func opTable(L *lua.LState) int {
	t := L.Get(1).(*lua.LTable)
	have, n := listSlots(t), L.GetTop()
	bytes := tableBytes + have*placeBytes
	if n := keySlots(t); n > 0 {
		bytes += tableBytes + n*entryBytes
	}
	chargeCost(L, int64(have)/8, int64(bytes))
	for i := 1; i <= have; i++ {
		if t.RawGetInt(i) == lua.LNil {
			meterOf(L).emptySlots++
		}
	}
	for i := 2; i < n; i += 2 {
		setField(L, t, L.Get(i), L.Get(i+1))
	}
	L.Push(t)
	return 1
}

func opFunction(L *lua.LState) int {
	chargeCost(L, 1, functionBytes)
	L.Push(L.Get(1))
	return 1
}

// opReturnArgs returns its arguments.
func opReturnArgs(L *lua.LState) int {
	n := L.GetTop()
	chargeCost(L, int64(n)/8, 0)
	return n
}

func opTail(L *lua.LState) int {
	chargeCost(L, 0, tailBytes)
	return 0
}
