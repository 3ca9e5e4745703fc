package script

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What scripts see. Tables are made anew for each answer, since scripts can change them;
// the functions in them hold no state.

// library of functions and numbers, by name. The order is one that scripts can see.
type library []entry

type entry struct {
	name  string
	value lua.LValue
}

// absent is what Lua has elsewhere, and why it is not here.
var absent = map[string]string{
	"io": noHost, "os": noHost, "package": noHost, "dofile": noHost, "loadfile": noHost, "module": noHost,
	"debug": noMachine, "collectgarbage": noMachine, "newproxy": noMachine, "getfenv": noMachine, "setfenv": noMachine, "coroutine": noMachine,
	"load": noCode, "loadstring": noCode,
	"getmetatable": noMeta, "setmetatable": noMeta,
}

const (
	noHost    = "a script sees no host, files or clock"
	noMachine = "a script does not see the machine that runs it"
	noCode    = "a script makes no further code"
	noMeta    = "tables have no metatables here"
)

func libraryOf(fs map[string]lua.LGFunction) library {
	out := make(library, 0, len(fs))
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		out = append(out, entry{name, &lua.LFunction{IsG: true, GFunction: fs[name]}})
	}
	return out
}

// table of the library, which the script may change.
func (lib library) table(L *lua.LState) *lua.LTable {
	t := L.CreateTable(0, len(lib))
	for _, e := range lib {
		t.RawSetString(e.name, e.value)
	}
	return t
}

var baseLibrary = libraryOf(map[string]lua.LGFunction{
	"assert": baseAssert, "error": baseError, "ipairs": baseIpairs, "next": baseNext, "pairs": basePairs,
	"pcall": basePcall, "xpcall": baseXpcall, "print": func(*lua.LState) int { return 0 }, "rawequal": opEq,
	"rawget": opGet, "rawset": baseRawset, "require": baseRequire, "select": baseSelect, "tonumber": baseToNumber,
	"tostring": baseToString, "type": baseType, "unpack": baseUnpack,
})

var ipairsStep, nextStep = &lua.LFunction{IsG: true, GFunction: baseIpairsStep}, &lua.LFunction{IsG: true, GFunction: baseNext}

// mathLibrary is the virtual machine's, without chance, and with numerals read as elsewhere.
var mathLibrary = func() library {
	L := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer L.Close()
	L.Push(L.NewFunction(lua.OpenMath))
	L.Call(0, 0)
	out := library{}
	L.GetGlobal("math").(*lua.LTable).ForEach(func(k, v lua.LValue) {
		name := k.String()
		switch f, isFunction := v.(*lua.LFunction); {
		case name == "random", name == "randomseed":
		case name == "huge":
			out = append(out, entry{name, lua.LNumber(math.Inf(1))})
		case isFunction:
			if own := ownMath[name]; own != nil {
				f.GFunction = own
			}
			out = append(out, entry{name, &lua.LFunction{IsG: true, GFunction: ofNumbers(f.GFunction)}})
		default:
			out = append(out, entry{name, v})
		}
	})
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return out
}()

// ownMath are functions whose cost goes by their operands.
var ownMath = map[string]lua.LGFunction{
	"fmod": func(L *lua.LState) int { return push(L, remainder(L, operand(L, 1), operand(L, 2))) },
	"mod":  opMod,
}

// ofNumbers reads texts among the arguments as numbers before f does, which reads them
// however long they are.
func ofNumbers(f lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		n := L.GetTop()
		charge(L, int64(n)/4, 0)
		for i := 1; i <= n; i++ {
			if _, isText := L.Get(i).(lua.LString); isText {
				L.Replace(i, lua.LNumber(operand(L, i)))
			}
		}
		return f(L)
	}
}

// open the libraries in a fresh state.
func open(L *lua.LState) {
	env := L.G.Global
	for _, e := range baseLibrary {
		env.RawSetString(e.name, e.value)
	}
	env.RawSetString("_G", env)
	env.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	texts := stringLibrary.table(L)
	env.RawSetString("string", texts)
	env.RawSetString("table", tableLibrary.table(L))
	env.RawSetString("math", mathLibrary.table(L))
	meta := L.CreateTable(0, 1)
	meta.RawSetString("__index", texts)
	L.SetMetatable(lua.LString(""), meta)
}

func tableArg(L *lua.LState, i int) *lua.LTable {
	t, ok := L.Get(i).(*lua.LTable)
	if !ok {
		L.RaiseError("argument %d is a %s, and a table is needed", i, described(L.Get(i)))
	}
	return t
}

// textArg is read from end to end, and paid for that.
func textArg(L *lua.LState, i int) string {
	s, ok := textual(L, L.Get(i))
	if !ok {
		L.RaiseError("argument %d is a %s, and a string is needed", i, described(L.Get(i)))
	}
	chargeText(L, len(s))
	return s
}

// whole argument, or what stands for an absent one.
func wholeArg(L *lua.LState, i int, absent int) int {
	if L.Get(i) == lua.LNil {
		return absent
	}
	f := math.Trunc(operand(L, i))
	return int(max(-1<<40, min(1<<40, f)))
}

func pushText(L *lua.LState, s string) int {
	charge(L, int64(len(s))/64, int64(len(s)+textBytes))
	L.Push(lua.LString(s))
	return 1
}

func baseAssert(L *lua.LState) int {
	if lua.LVIsFalse(L.Get(1)) {
		if L.GetTop() > 1 {
			throw(L, L.Get(2), 1)
		}
		L.RaiseError("assertion failed")
	}
	return L.GetTop()
}

func baseError(L *lua.LState) int {
	level := wholeArg(L, 2, 1)
	throw(L, L.Get(1), max(0, min(level, maxCalls)))
	return 0
}

// throw a value; a text is told anew with the place where it is thrown.
func throw(L *lua.LState, v lua.LValue, level int) {
	if s, isText := v.(lua.LString); isText {
		charge(L, int64(len(s))/16, 3*int64(len(s)))
	}
	L.Error(v, level)
}

func baseIpairs(L *lua.LState) int {
	t := tableArg(L, 1)
	L.Push(ipairsStep)
	L.Push(t)
	L.Push(lua.LNumber(0))
	return 3
}

func baseIpairsStep(L *lua.LState) int {
	i := wholeArg(L, 2, 0) + 1
	v := tableArg(L, 1).RawGetInt(i)
	if v == lua.LNil {
		return 0
	}
	L.Push(lua.LNumber(i))
	L.Push(v)
	return 2
}

func basePairs(L *lua.LState) int {
	t := tableArg(L, 1)
	L.Push(nextStep)
	L.Push(t)
	L.Push(lua.LNil)
	return 3
}

func baseNext(L *lua.LState) int {
	charge(L, 1+meterOf(L).holes/8, 0)
	if s, ok := L.Get(2).(lua.LString); ok {
		chargeText(L, len(s))
	}
	k, v := tableArg(L, 1).Next(L.Get(2))
	if k == lua.LNil {
		return 0
	}
	L.Push(k)
	L.Push(v)
	return 2
}

// An error that is caught costs what its words and the stack's do.
const (
	catchSteps = 400
	catchBytes = 32 << 10
)

// caught calls what lies on the stack above its arguments; ok when it threw nothing.
func caught(L *lua.LState, nargs int) (thrown lua.LValue, ok bool) {
	charge(L, 10, 256)
	err := L.PCall(nargs, lua.MultRet, nil)
	if err == nil {
		return nil, true
	}
	charge(L, catchSteps, catchBytes)
	if api, isAPI := err.(*lua.ApiError); isAPI && api.Object != nil {
		return api.Object, false
	}
	return lua.LString(err.Error()), false
}

func basePcall(L *lua.LState) int {
	n := L.GetTop()
	L.Insert(lua.LTrue, 1)
	if n == 0 {
		L.RaiseError("pcall needs a function")
	}
	if thrown, ok := caught(L, n-1); !ok {
		L.Push(lua.LFalse)
		L.Push(thrown)
		return 2
	}
	return L.GetTop()
}

func baseXpcall(L *lua.LState) int {
	handler := L.Get(2)
	L.Push(lua.LTrue)
	L.Push(L.Get(1))
	if thrown, ok := caught(L, 0); !ok {
		L.Push(lua.LFalse)
		L.Push(handler)
		L.Push(thrown)
		L.Call(1, 1)
		return 2
	}
	return L.GetTop() - 2
}

func baseRawset(L *lua.LState) int {
	set(L, tableArg(L, 1), L.Get(2), L.Get(3))
	L.Push(L.Get(1))
	return 1
}

func baseRequire(L *lua.LState) int {
	if name := textArg(L, 1); name != "kube" {
		L.RaiseError("require(%q): a script can require \"kube\", and nothing else", cut(name, 40))
	}
	charge(L, 1, 4<<10)
	L.Push(kubeLibrary.table(L))
	return 1
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop() - 1
	charge(L, int64(n)/8, 0)
	if L.Get(1) == lua.LString("#") {
		return push(L, float64(n))
	}
	i := wholeArg(L, 1, 0)
	if i < 0 {
		i += n + 1
	}
	if i < 1 {
		L.RaiseError("select(%d): there is no such argument", i)
	}
	return max(0, n-i+1)
}

func baseToNumber(L *lua.LState) int {
	base := wholeArg(L, 2, 10)
	switch v := L.Get(1).(type) {
	case lua.LNumber:
		L.Push(v)
		return 1
	case lua.LString:
		if base == 10 {
			if n, ok := numeral(L, string(v)); ok {
				L.Push(n)
				return 1
			}
		} else if s := strings.TrimSpace(cut(string(v), 70)); base >= 2 && base <= 36 {
			if n, err := strconv.ParseInt(s, base, 64); err == nil {
				return push(L, float64(n))
			}
		}
	}
	L.Push(lua.LNil)
	return 1
}

// baseToString names no addresses, which differ from call to call.
func baseToString(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		L.Push(v)
		return 1
	case *lua.LTable, *lua.LFunction:
		return pushText(L, v.Type().String())
	default:
		return pushText(L, v.String())
	}
}

func baseType(L *lua.LState) int {
	if L.GetTop() == 0 {
		L.RaiseError("type needs a value")
	}
	L.Push(lua.LString(L.Get(1).Type().String()))
	return 1
}

// maxUnpack values at once.
const maxUnpack = 250

func baseUnpack(L *lua.LState) int {
	t := tableArg(L, 1)
	charge(L, meterOf(L).holes/8, 0)
	from := wholeArg(L, 2, 1)
	to := wholeArg(L, 3, t.Len())
	if to-from >= maxUnpack {
		L.RaiseError("unpack of %d values: at most %d come at once", to-from+1, maxUnpack)
	}
	charge(L, int64(max(0, to-from))/8, 0)
	for i := from; i <= to; i++ {
		L.Push(t.RawGetInt(i))
	}
	return max(0, to-from+1)
}
