package script

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

var tableLibrary = newFunctionLibrary(map[string]lua.LGFunction{
	"concat": tableConcat, "getn": opLen, "insert": tableInsert, "maxn": tableMaxn, "remove": tableRemove, "sort": tableSort,
})

func tableConcat(L *lua.LState) int {
	t := tableArg(L, 1)
	sep := ""
	if L.Get(2) != lua.LNil {
		sep = stringArg(L, 2)
	}
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	from, to := integerArg(L, 3, 1), integerArg(L, 4, t.Len())
	size := 0
	for i := from; i <= to; i++ {
		s, ok := stringValue(L, t.RawGetInt(i))
		if !ok {
			L.RaiseError("table.concat: item %d is a %s", i, describeValue(t.RawGetInt(i)))
		}
		chargeCost(L, 1, 0)
		size += len(s) + len(sep)
	}
	chargeCost(L, int64(size)/64, int64(size)+textBytes)
	var out strings.Builder
	out.Grow(size)
	for i := from; i <= to; i++ {
		if i > from {
			out.WriteString(sep)
		}
		s, _ := stringValue(L, t.RawGetInt(i))
		out.WriteString(s)
	}
	L.Push(lua.LString(out.String()))
	return 1
}

func tableInsert(L *lua.LState) int {
	t := tableArg(L, 1)
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	n := t.Len()
	switch L.GetTop() {
	case 2:
		setField(L, t, lua.LNumber(n+1), L.Get(2))
	case 3:
		at := integerArg(L, 2, n+1)
		if at < 1 || at > n+1 {
			L.RaiseError("table.insert: there is no place %d among %d", at, n)
		}
		chargeCost(L, int64(n-at)/16, 0)
		setField(L, t, lua.LNumber(n+1), lua.LFalse)
		for i := n; i >= at; i-- {
			t.RawSetInt(i+1, t.RawGetInt(i))
		}
		setField(L, t, lua.LNumber(at), L.Get(3))
	default:
		L.RaiseError("table.insert takes a table, a place if it is not the end, and a value")
	}
	return 0
}

func tableRemove(L *lua.LState) int {
	t := tableArg(L, 1)
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	n := t.Len()
	at := integerArg(L, 2, n)
	if n == 0 || at < 1 || at > n {
		L.Push(lua.LNil)
		return 1
	}
	chargeCost(L, int64(n-at)/16, 0)
	v := t.RawGetInt(at)
	for i := at; i < n; i++ {
		t.RawSetInt(i, t.RawGetInt(i+1))
	}
	setField(L, t, lua.LNumber(n), lua.LNil)
	L.Push(v)
	return 1
}

func tableMaxn(L *lua.LState) int {
	t := tableArg(L, 1)
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	return pushNumber(L, float64(t.MaxN()))
}

// tableSort sorts a copy and writes it back, so that a comparison that changes the table, or
// contradicts itself, does no harm.
func tableSort(L *lua.LState) int {
	t := tableArg(L, 1)
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	n := t.Len()
	chargeCost(L, int64(n)/4, int64(n)*16)
	list := make([]lua.LValue, n)
	for i := range list {
		list[i] = t.RawGetInt(i + 1)
	}
	f := L.Get(2)
	before := func(a, b lua.LValue) bool {
		chargeCost(L, 2, 0)
		if f == lua.LNil {
			return lessThan(L, a, b)
		}
		top := L.GetTop()
		L.Push(f)
		L.Push(a)
		L.Push(b)
		L.Call(2, 1)
		is := lua.LVAsBool(L.Get(-1))
		L.SetTop(top)
		return is
	}
	slices.SortStableFunc(list, func(a, b lua.LValue) int {
		switch {
		case before(a, b):
			return -1
		case before(b, a):
			return 1
		}
		return 0
	})
	for i, v := range list {
		t.RawSetInt(i+1, v)
	}
	return 0
}
