package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// Rewritten scripts have the semantics of Lua 5.1.
func TestLua(t *testing.T) {
	for text, want := range map[string]string{
		`return {1 + 2 * 3 ^ 2 % 5 - -1, 7 % -3, -7 % 3, 7 / 2, "10" + 1, 2 ^ -1}`:                                                                                                                           `[5,-2,2,3.5,11,0.5]`,
		`return {1 < 2, "a" < "b", 1 <= 1, 2 > 3, "b" >= "a", 1 == "1", nil ~= false, not nil}`:                                                                                                              `[true,true,true,false,true,false,true,true]`,
		`local a, b = 1, 2 a, b = b, a local t = {} t.x, t.y, a = a, b, 3 return {t.x, t.y, a}`:                                                                                                              `[2,1,3]`,
		`local t, i = {1, 2}, 1 i, t[i] = i + 1, 20 return {t[1], t[2], i}`:                                                                                                                                  `[20,2,2]`,
		`local function f() return 1, 2, 3 end local t = {f(), f()} return {#t, (f()), select("#", f()), select(2, f())}`:                                                                                    `[4,1,3,2,3]`,
		`local function f(...) local a, b = ... return {n = select("#", ...), a = a, b = b, last = (select(-1, ...))} end return f(1, nil, 3)`:                                                               `{"a":1,"last":3,"n":3}`,
		`local function f(...) return ... end return {f(1, 2), f(3, 4)}`:                                                                                                                                     `[1,3,4]`,
		`local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end return {fact(10)}`:                                                                                                    `[3628800]`,
		`local function loop(n) if n == 0 then return "end" end return loop(n - 1) end return {loop(5000)}`:                                                                                                  `["end"]`,
		`local s = 0 for i = 10, 1, -3 do s = s + i end for _, v in ipairs({1, 2, nil, 4}) do s = s + v end return {s}`:                                                                                      `[25]`,
		`local out = {} for k, v in pairs({a = 1, 5, b = 2}) do out[#out + 1] = k .. "=" .. v end table.sort(out) return out`:                                                                                `["1=5","a=1","b=2"]`,
		`local fs = {} for i = 1, 3 do fs[i] = function() i = i + 1 return i end end return {fs[1](), fs[1](), fs[2]()}`:                                                                                     `[2,3,3]`,
		`local o = {n = 1} function o:add(x) self.n = self.n + x return self end function o.twice(x) return x * 2 end return {o:add(2):add(3).n, o.twice(4)}`:                                                `[6,8]`,
		`local a = {b = {}} function a.b.f() return 1 end a.b["c d"] = 2 return {a.b.f(), a["b"]["c d"]}`:                                                                                                    `[1,2]`,
		`local i = 0 repeat local done = i == 3 i = i + 1 until done while true do i = i + 1 if i > 8 then break end end return {i}`:                                                                         `[9]`,
		`for i = 1, 3 do for j = 1, 3 do if j == 2 then goto next end obj[i .. "," .. j] = true ::next:: end end return obj`:                                                                                 `{"1,1":true,"1,3":true,"2,1":true,"2,3":true,"3,1":true,"3,3":true}`,
		`return {("hello world"):find("o w"), ("hello"):find("l+"), ("a.b"):find(".", 1, true), ("x"):find("y")}`:                                                                                            `[5,3,2]`,
		`return {("key = value"):match("^(%w+)%s*=%s*(%w+)$")}`:                                                                                                                                              `["key","value"]`,
		`return {("2024-01-02"):match("(%d+)-(%d+)-(%d+)")}`:                                                                                                                                                 `["2024","01","02"]`,
		`return {("f(a(b)c)d"):match("%b()"), ("THE (quick) fox"):find("%((%a+)%)"), ("  trim "):match("^%s*(.-)%s*$")}`:                                                                                     `["(a(b)c)",5,"trim"]`,
		`return {(("hello world"):gsub("o", "0")), (("abc"):gsub("%w", "%0%0")), (("abc"):gsub("", "-")), (("$name is"):gsub("%$(%w+)", {name = "x"}))}`:                                                     `["hell0 w0rld","aabbcc","-a-b-c-","x is"]`,
		`local s, n = ("abc"):gsub(".", function(c) if c == "b" then return "B" end end, 2) return {s, n}`:                                                                                                   `["aBc",2]`,
		`local out = {} for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do out[k] = v end return out`:                                                                                                         `{"a":"1","b":"2"}`,
		`return {("%5.2f|%d|%s|%q|%x|%-4s|%03d|%%"):format(3.14159, 42, "s", 'a"b', 255, "l", 7)}`:                                                                                                           `[" 3.14|42|s|\"a\\\"b\"|ff|l   |007|%"]`,
		`return {("hello"):sub(2, -2), ("hello"):sub(-3), ("x"):rep(3), ("abc"):reverse(), ("Ab"):upper(), ("Ab"):lower(), #"abc", ("a"):byte(), string.char(72, 105)}`:                                      `["ell","llo","xxx","cba","AB","ab",3,97,"Hi"]`,
		`local t = {3, 1, 2} table.insert(t, 5) table.insert(t, 1, 0) table.remove(t, 2) table.sort(t, function(a, b) return a > b end) return {table.concat(t, ","), table.remove(t), #t}`:                  `["5,2,1,0",0,3]`,
		`return {tonumber("0x10"), tonumber(" 12 "), tonumber("1e3"), tonumber("ff", 16), tonumber("x") == nil, tonumber("010"), tostring(1), tostring(0.5), tostring(nil), tostring(true), tostring({})}`:   `[16,12,1000,255,true,10,"1","0.5","nil","true","table"]`,
		`local ok, e = pcall(error, "x", 0) local ok2, e2 = pcall(function() error({code = 2}) end) local ok3, v = pcall(function(a) return a end, 5) return {ok, e, ok2, e2.code, ok3, v}`:                  `[false,"x",false,2,true,5]`,
		`return {xpcall(function() error("x", 0) end, function(e) return e .. "!" end)}`:                                                                                                                     `[false,"x!"]`,
		`return {math.floor(1.5), math.max(1, 3, 2), math.abs(-1), math.huge > 1, math.ceil(1.2), type(math.pi), math.random == nil}`:                                                                        `[1,3,1,true,2,"number",true]`,
		`return {next({}) == nil, next({1}), rawget({a = 1}, "a"), rawequal(1, 1), unpack({1, 2})}`:                                                                                                          `[true,1,1,true,1,2]`,
		`return {select("#", unpack({}, 1, 250)), select("#", unpack({}, 5, 4)), select("#", unpack({}, 9, 4)), unpack({1, 2, 3}, 2)}`:                                                                       `[250,0,0,2,3]`,
		`local t = {10, 20, 30, [2 + 2] = 40, ["x y"] = nil, [("k"):rep(2)] = 5} t.kk = nil return t`:                                                                                                        `[10,20,30,40]`,
		`local t = {} for i, d in ipairs(require("kube").getPodDependencies({spec = {serviceAccountName = "a", volumes = {{secret = {secretName = "s"}}}}}, "shop")) do t[i] = d.kind end return t`:          `["Secret","ServiceAccount"]`,
		`local k = require("kube") return {#k.getPodDependencies({spec = {}, metadata = {namespace = "shop"}}, "shop"), k.accuratePodRequirements({spec = {}}) == nil}`:                                      `[0,true]`,
		`return {math.floor("1.5"), math.fmod(-7, 3), math.fmod(7, -3), math.mod(7, 3), math.max("2", 1), 5 % math.huge, 1e300 % 7, math.fmod("0x10", 7)}`:                                                   `[1,-1,1,1,2,5,1,2]`,
		`return {("ÄB"):lower(), ("äß1"):upper(), ("\255A"):lower() == "\255a", #("\255\254"):upper()}`:                                                                                                      `["äb","Äß1",true,2]`,
		`print("nowhere") local os = {time = 1} return {os.time, _VERSION, type(require("kube").getResourceQuantity), require("kube").getResourceQuantity("100m")}`:                                          `[1,"Lua 5.1","function",0.1]`,
		`return {os.time(), os.date("%Y-%m-%dT%H:%M:%SZ"), os.date("!%c"), os.date("%j %w %a %p%%", 0), os.date("plain"), os.date()}`:                                                                        `[1767323045,"2026-01-02T03:04:05Z","Fri Jan  2 03:04:05 2026","001 4 Thu AM%","plain","Fri Jan  2 03:04:05 2026"]`,
		`local d = os.date("*t") return {d.year, d.month, d.day, d.hour, d.min, d.sec, d.wday, d.yday, d.isdst}`:                                                                                             `[2026,1,2,3,4,5,6,2,false]`,
		`return {os.time({year = 2026, month = 1, day = 2, hour = 3, min = 4, sec = 5}), os.time({year = "1970", month = "01", day = 2}), os.time(os.date("*t")) == os.time(), ({pcall(require, "os")})[1]}`: `[1767323045,129600,true,false]`,
		`local k = require("kube") return {k.resourceAdd("100m", "1"), k.resourceAdd("1Gi", "512Mi"), k.resourceAdd("1", nil, 2), k.resourceAdd()}`:                                                          `["1100m","1536Mi","3","0"]`,
	} {
		p, err := compileLua("t.lua", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := p.runFunction("", []argument{{"obj", map[string]any{}}}, 1, 1767323045, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := json.Marshal(out[0])
		if err != nil || string(got) != want && strings.ReplaceAll(string(got), `\u003c`, "<") != want {
			t.Errorf("%s:\n got %s %v\nwant %s", text, got, err, want)
		}
	}
}

// Each class of a pattern matches as many bytes as in C's locale. An upper-case class is the
// complement, and what is no class matches itself.
func TestCharacterClassesOfPatterns(t *testing.T) {
	sizes := map[byte]int{'a': 52, 'c': 33, 'd': 10, 'l': 26, 'p': 32, 's': 6, 'u': 26, 'w': 62, 'x': 22, 'z': 1}
	for class := range 256 {
		matches := 0
		for c := range 256 {
			if inClass(byte(c), byte(class)) {
				matches++
			}
		}
		want, lower := 1, byte(class)|0x20
		if n := sizes[lower]; n > 0 && isLetter(byte(class)) {
			if want = n; byte(class) != lower {
				want = 256 - n
			}
		}
		if matches != want || want == 1 && byte(class) != 'z' && !inClass(byte(class), byte(class)) {
			t.Errorf("%%%c matches %d bytes, want %d", class, matches, want)
		}
	}
	for class, members := range map[byte]string{'a': "AZaz", 'c': "\x00\x1f\x7f", 'd': "09", 'l': "az", 'p': "!~/:@[`{", 's': " \t\n\v\f\r", 'u': "AZ", 'w': "09AZaz", 'x': "09AFaf", 'z': "\x00"} {
		for i := range len(members) {
			if !inClass(members[i], class) || inClass(members[i], class&^0x20) {
				t.Errorf("%%%c and %q", class, members[i])
			}
		}
	}
}

// An operation on a value that does not have it fails with the operation, the value and the line.
func TestErrorsNameTheOperationAndTheValue(t *testing.T) {
	for text, want := range map[string]string{
		"local n = 5\nn.a = 1":                  `a field string "a" of a number is set`,
		"local n\nreturn n.a":                   `attempt to index a non-table object(nil) with key 'a'`,
		"local n = true\nreturn n[2]":           `a field number of a boolean is read`,
		"local n = 5\nreturn #n":                `a number has no length`,
		"local n = {}\nreturn n + 1":            `arithmetic with a table`,
		"local n = 'x'\nreturn -n":              `arithmetic with a string "x"`,
		"local n = {}\nreturn 'a' .. n":         `a table is joined to a text`,
		"local n = {}\nreturn n < 1":            `attempt to compare table with number`,
		"local n = 'x'\nreturn 1 <= n":          `attempt to compare number with string`,
		"local n = {}\nn[nil] = 1":              `a field is set whose key is nil`,
		"local n = {}\nn[0/0] = 1":              `a field is set whose key is not a number`,
		"local n = {}\nerror({code = 1})":       `table`,
		"local n\nn()":                          `attempt to call a non-function object`,
		"local n = ('x'):rep(50)\nreturn n + 1": `arithmetic with a string "` + strings.Repeat("x", 39),
	} {
		err := answerOf(text, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != 2 && want != "table" {
			t.Errorf("%s: the error %v is not of line 2", text, err)
		}
	}
}

// A table is charged at least the memory that it takes, slot by slot and key by key, so that no
// script takes more than its bound.
func TestTablesAreChargedTheMemoryThatTheyTake(t *testing.T) {
	for name, c := range map[string]struct {
		fill   func(*lua.LState, *lua.LTable, int)
		values int
	}{
		"a list from its first slot on": {func(L *lua.LState, at *lua.LTable, i int) {
			setField(L, at, lua.LNumber(i+1), lua.LTrue)
		}, 1000},
		"a list with holes": {func(L *lua.LState, at *lua.LTable, i int) {
			setField(L, at, lua.LNumber(3*i+1), lua.LTrue)
		}, 1000},
		"few keys": {func(L *lua.LState, at *lua.LTable, i int) {
			setField(L, at, lua.LString(fmt.Sprint("k", i)), lua.LTrue)
		}, 50},
		"many keys": {func(L *lua.LState, at *lua.LTable, i int) {
			setField(L, at, lua.LString(fmt.Sprint("k", i)), lua.LTrue)
		}, 1000},
	} {
		L := lua.NewState(lua.Options{SkipOpenLibs: true})
		defer L.Close()
		meter := &costMeter{stepsLeft: MaxSteps, bytesLeft: MaxBytes}
		L.SetContext(meter)
		at := L.NewTable()
		before := allocatedBytes()
		for i := range c.values {
			c.fill(L, at, i)
		}
		took, charged := int64(allocatedBytes()-before), int64(MaxBytes)-meter.bytesLeft
		// The race detector allocates for itself.
		if charged < took && !raceEnabled {
			t.Errorf("%s: %d bytes are charged for %d", name, charged, took)
		}
		if charged > 12*took {
			t.Errorf("%s: %d bytes are charged for only %d", name, charged, took)
		}
		left := meter.bytesLeft
		c.fill(L, at, 0)
		setField(L, at, lua.LString("absent"), lua.LNil)
		setField(L, at, lua.LNumber(1e6), lua.LNil)
		if meter.bytesLeft != left || meter.emptySlots < 0 {
			t.Errorf("%s: what adds no slot costs %d bytes", name, left-meter.bytesLeft)
		}
	}
}

// Slots that a script empties are counted, because searches walk over them.
func TestEmptiedSlotsAreCounted(t *testing.T) {
	L := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer L.Close()
	meter := &costMeter{stepsLeft: MaxSteps, bytesLeft: MaxBytes}
	L.SetContext(meter)
	at := L.NewTable()
	set := func(key, value lua.LValue) int64 {
		before := meter.emptySlots
		setField(L, at, key, value)
		return meter.emptySlots - before
	}
	for _, c := range []struct {
		name       string
		key, value lua.LValue
		want       int64
	}{
		{"a first slot", lua.LNumber(1), lua.LTrue, 0},
		{"the next slot", lua.LNumber(2), lua.LTrue, 0},
		{"a slot after two empty ones", lua.LNumber(5), lua.LTrue, 2},
		{"a slot is emptied", lua.LNumber(2), lua.LNil, 1},
		{"a key", lua.LString("k"), lua.LTrue, 0},
		{"the key is emptied", lua.LString("k"), lua.LNil, 1},
		{"a key that was never set", lua.LString("other"), lua.LNil, 0},
	} {
		if got := set(c.key, c.value); got != c.want {
			t.Errorf("%s: %d slots are counted as emptied, want %d", c.name, got, c.want)
		}
	}
}

// A pattern may nest as deep as C's Lua allows.
func TestPatternsAreAsDeepAsTheyMayBe(t *testing.T) {
	for choices, want := range map[int]string{maxMatchDepth - 1: "", maxMatchDepth: "the pattern is too complex"} {
		err := answerOf(fmt.Sprintf(`return ("a"):rep(300):find(("a?"):rep(%d))`, choices), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d choices: %v, want %q", choices, err, want)
		}
	}
}
