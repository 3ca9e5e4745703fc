package script

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"atoll.dev/atoll/internal/phrase"
)

// functionLibrary is a list of functions and numbers, in an order that scripts can see. Its
// tables are made for each answer, since scripts can change them. Its functions hold no state.
type functionLibrary []libraryEntry

type libraryEntry struct {
	name  string
	value lua.LValue
}

// forbiddenGlobals are names of standard Lua that scripts do not have, with the reason.
var forbiddenGlobals = map[string]string{
	"io": reasonNoHost, "package": reasonNoHost, "dofile": reasonNoHost, "loadfile": reasonNoHost, "module": reasonNoHost,
	"debug": reasonNoMachine, "collectgarbage": reasonNoMachine, "newproxy": reasonNoMachine, "getfenv": reasonNoMachine, "setfenv": reasonNoMachine, "coroutine": reasonNoMachine,
	"load": reasonNoCode, "loadstring": reasonNoCode,
	"getmetatable": reasonNoMetatables, "setmetatable": reasonNoMetatables,
}

const (
	reasonNoHost       = "a script sees no host, files or clock"
	reasonNoMachine    = "a script does not see the machine that runs it"
	reasonNoCode       = "a script makes no further code"
	reasonNoMetatables = "tables have no metatables here"
)

func newFunctionLibrary(fs map[string]lua.LGFunction) functionLibrary {
	out := make(functionLibrary, 0, len(fs))
	for _, name := range slices.Sorted(maps.Keys(fs)) {
		out = append(out, libraryEntry{name, &lua.LFunction{IsG: true, GFunction: fs[name]}})
	}
	return out
}

// newTable returns a table that the script may change.
func (lib functionLibrary) newTable(L *lua.LState) *lua.LTable {
	t := L.CreateTable(0, len(lib))
	for _, e := range lib {
		t.RawSetString(e.name, e.value)
	}
	return t
}

var baseLibrary = newFunctionLibrary(map[string]lua.LGFunction{
	"assert": baseAssert, "error": baseError, "ipairs": baseIpairs, "next": baseNext, "pairs": basePairs,
	"pcall": basePcall, "xpcall": baseXpcall, "print": func(*lua.LState) int { return 0 }, "rawequal": opEq,
	"rawget": opGet, "rawset": baseRawset, "require": baseRequire, "select": baseSelect, "tonumber": baseToNumber,
	"tostring": baseToString, "type": baseType, "unpack": baseUnpack,
})

var ipairsStep, nextStep = &lua.LFunction{IsG: true, GFunction: baseIpairsStep}, &lua.LFunction{IsG: true, GFunction: baseNext}

// mathLibrary is gopher-lua's without random numbers, and with the numerals of this package.
var mathLibrary = func() functionLibrary {
	L := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer L.Close()
	L.Push(L.NewFunction(lua.OpenMath))
	L.Call(0, 0)
	out := functionLibrary{}
	L.GetGlobal("math").(*lua.LTable).ForEach(func(k, v lua.LValue) {
		name := k.String()
		switch f, isFunction := v.(*lua.LFunction); {
		case name == "random", name == "randomseed":
		case name == "huge":
			out = append(out, libraryEntry{name, lua.LNumber(math.Inf(1))})
		case isFunction:
			if own := mathOverrides[name]; own != nil {
				f.GFunction = own
			}
			out = append(out, libraryEntry{name, &lua.LFunction{IsG: true, GFunction: withTextArgsAsNumbers(f.GFunction)}})
		default:
			out = append(out, libraryEntry{name, v})
		}
	})
	slices.SortFunc(out, func(a, b libraryEntry) int { return strings.Compare(a.name, b.name) })
	return out
}()

// mathOverrides are functions whose cost depends on their operands.
var mathOverrides = map[string]lua.LGFunction{
	"fmod": func(L *lua.LState) int { return pushNumber(L, floatRemainder(L, numberArg(L, 1), numberArg(L, 2))) },
	"mod":  opMod,
}

// withTextArgsAsNumbers converts texts among the arguments to numbers with a bound. f itself would read
// them at any length.
func withTextArgsAsNumbers(f lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		n := L.GetTop()
		chargeCost(L, int64(n)/4, 0)
		for i := 1; i <= n; i++ {
			if _, isText := L.Get(i).(lua.LString); isText {
				L.Replace(i, lua.LNumber(numberArg(L, i)))
			}
		}
		return f(L)
	}
}

// openLibraries opens the libraries in a new state.
func openLibraries(L *lua.LState) {
	env := L.G.Global
	for _, e := range baseLibrary {
		env.RawSetString(e.name, e.value)
	}
	env.RawSetString("_G", env)
	env.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	texts := stringLibrary.newTable(L)
	env.RawSetString("string", texts)
	env.RawSetString("table", tableLibrary.newTable(L))
	env.RawSetString("math", mathLibrary.newTable(L))
	meta := L.CreateTable(0, 1)
	meta.RawSetString("__index", texts)
	L.SetMetatable(lua.LString(""), meta)
}

func tableArg(L *lua.LState, i int) *lua.LTable {
	t, ok := L.Get(i).(*lua.LTable)
	if !ok {
		L.RaiseError("argument %d is a %s, and a table is needed", i, describeValue(L.Get(i)))
	}
	return t
}

// stringArg returns a text and charges for reading it.
func stringArg(L *lua.LState, i int) string {
	s, ok := stringValue(L, L.Get(i))
	if !ok {
		L.RaiseError("argument %d is a %s, and a string is needed", i, describeValue(L.Get(i)))
	}
	chargeString(L, len(s))
	return s
}

// integerArg returns argument i as a whole number, or absent where it is nil.
func integerArg(L *lua.LState, i int, absent int) int {
	if L.Get(i) == lua.LNil {
		return absent
	}
	f := math.Trunc(numberArg(L, i))
	return int(max(-1<<40, min(1<<40, f)))
}

func pushString(L *lua.LState, s string) int {
	chargeCost(L, int64(len(s))/64, int64(len(s)+textBytes))
	L.Push(lua.LString(s))
	return 1
}

func baseAssert(L *lua.LState) int {
	if lua.LVIsFalse(L.Get(1)) {
		if L.GetTop() > 1 {
			throwValue(L, L.Get(2), 1)
		}
		L.RaiseError("assertion failed")
	}
	return L.GetTop()
}

func baseError(L *lua.LState) int {
	level := integerArg(L, 2, 1)
	throwValue(L, L.Get(1), max(0, min(level, maxCalls)))
	return 0
}

// throwValue throws a value. The virtual machine prepends the place to a text, which is charged.
func throwValue(L *lua.LState, v lua.LValue, level int) {
	if s, isText := v.(lua.LString); isText {
		chargeCost(L, int64(len(s))/16, 3*int64(len(s)))
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
	i := integerArg(L, 2, 0) + 1
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
	chargeCost(L, 1+meterOf(L).emptySlots/8, 0)
	if s, ok := L.Get(2).(lua.LString); ok {
		chargeString(L, len(s))
	}
	k, v := tableArg(L, 1).Next(L.Get(2))
	if k == lua.LNil {
		return 0
	}
	L.Push(k)
	L.Push(v)
	return 2
}

// The cost of a caught error: its message and the stack trace.
const (
	catchSteps = 400
	catchBytes = 32 << 10
)

// callProtected calls the function on the stack below its arguments. ok is false where it
// throws.
func callProtected(L *lua.LState, nargs int) (thrown lua.LValue, ok bool) {
	chargeCost(L, 10, 256)
	err := L.PCall(nargs, lua.MultRet, nil)
	if err == nil {
		return nil, true
	}
	chargeCost(L, catchSteps, catchBytes)
	return thrownValue(err), false
}

func basePcall(L *lua.LState) int {
	n := L.GetTop()
	L.Insert(lua.LTrue, 1)
	if n == 0 {
		L.RaiseError("pcall needs a function")
	}
	if thrown, ok := callProtected(L, n-1); !ok {
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
	if thrown, ok := callProtected(L, 0); !ok {
		L.Push(lua.LFalse)
		L.Push(handler)
		L.Push(thrown)
		L.Call(1, 1)
		return 2
	}
	return L.GetTop() - 2
}

func baseRawset(L *lua.LState) int {
	setField(L, tableArg(L, 1), L.Get(2), L.Get(3))
	L.Push(L.Get(1))
	return 1
}

func baseRequire(L *lua.LState) int {
	if name := stringArg(L, 1); name != "kube" {
		L.RaiseError("require(%q): a script can require \"kube\", and nothing else", phrase.CutText(name, 40))
	}
	chargeCost(L, 1, 4<<10)
	L.Push(kubeLibrary.newTable(L))
	return 1
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop() - 1
	chargeCost(L, int64(n)/8, 0)
	if L.Get(1) == lua.LString("#") {
		return pushNumber(L, float64(n))
	}
	i := integerArg(L, 1, 0)
	if i < 0 {
		i += n + 1
	}
	if i < 1 {
		L.RaiseError("select(%d): there is no such argument", i)
	}
	return max(0, n-i+1)
}

func baseToNumber(L *lua.LState) int {
	base := integerArg(L, 2, 10)
	switch v := L.Get(1).(type) {
	case lua.LNumber:
		L.Push(v)
		return 1
	case lua.LString:
		if base == 10 {
			if n, ok := parseNumeral(L, string(v)); ok {
				L.Push(n)
				return 1
			}
		} else if s := strings.TrimSpace(phrase.CutText(string(v), 70)); base >= 2 && base <= 36 {
			if n, err := strconv.ParseInt(s, base, 64); err == nil {
				return pushNumber(L, float64(n))
			}
		}
	}
	L.Push(lua.LNil)
	return 1
}

// baseToString prints no addresses, which differ from call to call.
func baseToString(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		L.Push(v)
		return 1
	case *lua.LTable, *lua.LFunction:
		return pushString(L, v.Type().String())
	default:
		return pushString(L, v.String())
	}
}

func baseType(L *lua.LState) int {
	if L.GetTop() == 0 {
		L.RaiseError("type needs a value")
	}
	L.Push(lua.LString(L.Get(1).Type().String()))
	return 1
}

// maxUnpack is the most values that unpack and string.byte return.
const maxUnpack = 250

func baseUnpack(L *lua.LState) int {
	t := tableArg(L, 1)
	chargeCost(L, meterOf(L).emptySlots/8, 0)
	from := integerArg(L, 2, 1)
	to := integerArg(L, 3, t.Len())
	if to-from >= maxUnpack {
		L.RaiseError("unpack of %d values: at most %d come at once", to-from+1, maxUnpack)
	}
	chargeCost(L, int64(max(0, to-from))/8, 0)
	for i := from; i <= to; i++ {
		L.Push(t.RawGetInt(i))
	}
	return max(0, to-from+1)
}
