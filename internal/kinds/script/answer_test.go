package script

import "testing"

// A script answers by itself where one of its own statements returns a value, however deep in blocks;
// what a function returns is no answer.
func TestScriptsThatAnswerByThemselves(t *testing.T) {
	for text, want := range map[string]bool{
		"return 1":               true,
		"return":                 false,
		"local a = 1":            false,
		"if a then return 1 end": true,
		"if a then local b = 1 else return 1 end":      true,
		"if a then local b = 1 end":                    false,
		"do return 1 end":                              true,
		"while a do return 1 end":                      true,
		"repeat return 1 until a":                      true,
		"for i = 1, 2 do return i end":                 true,
		"for k in pairs(t) do return k end":            true,
		"for k in pairs(t) do local b = k end":         false,
		"do while a do if b then return 1 end end end": true,
		"function f() return 1 end":                    false,
		"local f = function() return 1 end":            false,
	} {
		p, err := compileLua("x.lua", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if p.returns != want {
			t.Errorf("%s: answers by itself is %t", text, p.returns)
		}
	}
}
