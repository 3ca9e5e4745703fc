package script

import (
	"encoding/json"
	"strings"
	"testing"
)

// What scripts can say means what it means in Lua 5.1, though most of it is rewritten.
func TestLua(t *testing.T) {
	for text, want := range map[string]string{
		`return {1 + 2 * 3 ^ 2 % 5 - -1, 7 % -3, -7 % 3, 7 / 2, "10" + 1, 2 ^ -1}`:                                                                                                                         `[5,-2,2,3.5,11,0.5]`,
		`return {1 < 2, "a" < "b", 1 <= 1, 2 > 3, "b" >= "a", 1 == "1", nil ~= false, not nil}`:                                                                                                            `[true,true,true,false,true,false,true,true]`,
		`local a, b = 1, 2 a, b = b, a local t = {} t.x, t.y, a = a, b, 3 return {t.x, t.y, a}`:                                                                                                            `[2,1,3]`,
		`local t, i = {1, 2}, 1 i, t[i] = i + 1, 20 return {t[1], t[2], i}`:                                                                                                                                `[20,2,2]`,
		`local function f() return 1, 2, 3 end local t = {f(), f()} return {#t, (f()), select("#", f()), select(2, f())}`:                                                                                  `[4,1,3,2,3]`,
		`local function f(...) local a, b = ... return {n = select("#", ...), a = a, b = b, last = (select(-1, ...))} end return f(1, nil, 3)`:                                                             `{"a":1,"last":3,"n":3}`,
		`local function f(...) return ... end return {f(1, 2), f(3, 4)}`:                                                                                                                                   `[1,3,4]`,
		`local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end return {fact(10)}`:                                                                                                  `[3628800]`,
		`local function loop(n) if n == 0 then return "end" end return loop(n - 1) end return {loop(5000)}`:                                                                                                `["end"]`,
		`local s = 0 for i = 10, 1, -3 do s = s + i end for _, v in ipairs({1, 2, nil, 4}) do s = s + v end return {s}`:                                                                                    `[25]`,
		`local out = {} for k, v in pairs({a = 1, 5, b = 2}) do out[#out + 1] = k .. "=" .. v end table.sort(out) return out`:                                                                              `["1=5","a=1","b=2"]`,
		`local fs = {} for i = 1, 3 do fs[i] = function() i = i + 1 return i end end return {fs[1](), fs[1](), fs[2]()}`:                                                                                   `[2,3,3]`,
		`local o = {n = 1} function o:add(x) self.n = self.n + x return self end function o.twice(x) return x * 2 end return {o:add(2):add(3).n, o.twice(4)}`:                                              `[6,8]`,
		`local a = {b = {}} function a.b.f() return 1 end a.b["c d"] = 2 return {a.b.f(), a["b"]["c d"]}`:                                                                                                  `[1,2]`,
		`local i = 0 repeat local done = i == 3 i = i + 1 until done while true do i = i + 1 if i > 8 then break end end return {i}`:                                                                       `[9]`,
		`for i = 1, 3 do for j = 1, 3 do if j == 2 then goto next end obj[i .. "," .. j] = true ::next:: end end return obj`:                                                                               `{"1,1":true,"1,3":true,"2,1":true,"2,3":true,"3,1":true,"3,3":true}`,
		`return {("hello world"):find("o w"), ("hello"):find("l+"), ("a.b"):find(".", 1, true), ("x"):find("y")}`:                                                                                          `[5,3,2]`,
		`return {("key = value"):match("^(%w+)%s*=%s*(%w+)$")}`:                                                                                                                                            `["key","value"]`,
		`return {("2024-01-02"):match("(%d+)-(%d+)-(%d+)")}`:                                                                                                                                               `["2024","01","02"]`,
		`return {("f(a(b)c)d"):match("%b()"), ("THE (quick) fox"):find("%((%a+)%)"), ("  trim "):match("^%s*(.-)%s*$")}`:                                                                                   `["(a(b)c)",5,"trim"]`,
		`return {(("hello world"):gsub("o", "0")), (("abc"):gsub("%w", "%0%0")), (("abc"):gsub("", "-")), (("$name is"):gsub("%$(%w+)", {name = "x"}))}`:                                                   `["hell0 w0rld","aabbcc","-a-b-c-","x is"]`,
		`local s, n = ("abc"):gsub(".", function(c) if c == "b" then return "B" end end, 2) return {s, n}`:                                                                                                 `["aBc",2]`,
		`local out = {} for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do out[k] = v end return out`:                                                                                                       `{"a":"1","b":"2"}`,
		`return {("%5.2f|%d|%s|%q|%x|%-4s|%03d|%%"):format(3.14159, 42, "s", 'a"b', 255, "l", 7)}`:                                                                                                         `[" 3.14|42|s|\"a\\\"b\"|ff|l   |007|%"]`,
		`return {("hello"):sub(2, -2), ("hello"):sub(-3), ("x"):rep(3), ("abc"):reverse(), ("Ab"):upper(), ("Ab"):lower(), #"abc", ("a"):byte(), string.char(72, 105)}`:                                    `["ell","llo","xxx","cba","AB","ab",3,97,"Hi"]`,
		`local t = {3, 1, 2} table.insert(t, 5) table.insert(t, 1, 0) table.remove(t, 2) table.sort(t, function(a, b) return a > b end) return {table.concat(t, ","), table.remove(t), #t}`:                `["5,2,1,0",0,3]`,
		`return {tonumber("0x10"), tonumber(" 12 "), tonumber("1e3"), tonumber("ff", 16), tonumber("x") == nil, tonumber("010"), tostring(1), tostring(0.5), tostring(nil), tostring(true), tostring({})}`: `[16,12,1000,255,true,10,"1","0.5","nil","true","table"]`,
		`local ok, e = pcall(error, "x", 0) local ok2, e2 = pcall(function() error({code = 2}) end) local ok3, v = pcall(function(a) return a end, 5) return {ok, e, ok2, e2.code, ok3, v}`:                `[false,"x",false,2,true,5]`,
		`return {xpcall(function() error("x", 0) end, function(e) return e .. "!" end)}`:                                                                                                                   `[false,"x!"]`,
		`return {math.floor(1.5), math.max(1, 3, 2), math.abs(-1), math.huge > 1, math.ceil(1.2), type(math.pi), math.random == nil}`:                                                                      `[1,3,1,true,2,"number",true]`,
		`return {next({}) == nil, next({1}), rawget({a = 1}, "a"), rawequal(1, 1), unpack({1, 2})}`:                                                                                                        `[true,1,1,true,1,2]`,
		`local t = {10, 20, 30, [2 + 2] = 40, ["x y"] = nil, [("k"):rep(2)] = 5} t.kk = nil return t`:                                                                                                      `[10,20,30,40]`,
		`local t = {} for i, d in ipairs(require("kube").getPodDependencies({spec = {serviceAccountName = "a", volumes = {{secret = {secretName = "s"}}}}}, "shop")) do t[i] = d.kind end return t`:        `["Secret","ServiceAccount"]`,
		`local k = require("kube") return {#k.getPodDependencies({spec = {}, metadata = {namespace = "shop"}}, "shop"), k.accuratePodRequirements({spec = {}}) == nil}`:                                    `[0,true]`,
		`return {math.floor("1.5"), math.fmod(-7, 3), math.fmod(7, -3), math.mod(7, 3), math.max("2", 1), 5 % math.huge, 1e300 % 7, math.fmod("0x10", 7)}`:                                                 `[1,-1,1,1,2,5,1,2]`,
		`return {("ÄB"):lower(), ("äß1"):upper(), ("\255A"):lower() == "\255a", #("\255\254"):upper()}`:                                                                                                    `["äb","Äß1",true,2]`,
		`print("to nobody") local os = {time = 1} return {os.time, _VERSION, type(require("kube").getResourceQuantity), require("kube").getResourceQuantity("100m")}`:                                      `[1,"Lua 5.1","function",0.1]`,
	} {
		p, err := compileLua("t.lua", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := p.ask("", []argument{{"obj", map[string]any{}}}, 1, nil)
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
