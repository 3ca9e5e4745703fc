package script

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Every script ends within its bounds, and its answer is JSON or an error.
func FuzzLua(f *testing.F) {
	for _, name := range []string{"certificate.lua"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, text := range []string{
		`return {status = "Healthy", message = ("x"):rep(3)}`,
		`local t = {1, 2, [3 + 1] = 4, a = {b = {}}, ["c d"] = -1} t.a, t.b = t[1], #t return t`,
		`for w, x in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do obj[w] = tonumber(x) % 3 ^ 2 end return obj`,
		`local function f(a, ...) if a then return select("#", ...) end return f(1, ...) end return {f(nil, 1, 2)}`,
		`local ok, e = pcall(function() error({code = 2}) end) return {ok = ok, code = e.code}`,
		`local r = {} for k, v in pairs(obj) do table.insert(r, 1, k .. tostring(v)) end table.sort(r) return {table.concat(r, ",")}`,
		`goto a do return {} end ::a:: repeat local x = 1 until x == 1 while true do break end return {("%5.2f|%q"):format(1.5, "a")}`,
		`return (("hello"):gsub("(l)(.)", "%2%1")) .. string.upper("x") .. ("abc"):byte(-1)`,
		`local o = {} function o:m(x) return self, x end function o.f(...) return ... end return {o.f(o:m(1)) == o}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		began, before := time.Now(), allocatedBytes()
		p, err := compileLua("fuzz.lua", text)
		if err != nil {
			return
		}
		_, err = p.runFunction("", []argument{{"obj", map[string]any{"a": int64(1), "b": []any{"x", nil, 1.5}, "c": map[string]any{}}}}, 1, 0, nil)
		if took := time.Since(began); took > 10*promisedTime {
			t.Errorf("took %v: %v", took, err)
		}
		if made := allocatedBytes() - before; made > 2*promisedBytes {
			t.Errorf("made %d kB: %v", made>>10, err)
		}
	})
}
