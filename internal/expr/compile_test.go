package expr_test

import (
	"runtime"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/expr"
)

// The cost of compiling a text grows with its length: macros that copy their target are not there, and types do not
// double in a chain.
func TestTheCostOfCompilingIsBounded(t *testing.T) {
	environments := map[string]func(string) error{
		"selector":  func(text string) error { _, err := expr.CompileClusterSelector(text); return err },
		"value":     func(text string) error { _, err := expr.CompileValueExpression(text); return err },
		"counts":    func(text string) error { _, err := expr.CompileCountExpression(text); return err },
		"document":  func(text string) error { _, err := expr.CompileDocumentExpression(text, "object"); return err },
		"condition": func(text string) error { _, err := expr.CompileObjectCondition(text); return err },
	}
	for name, bomb := range map[string]string{
		"optMap":                "optional.of(1)" + strings.Repeat(".optMap(x,x)", 9) + ".hasValue()",
		"optFlatMap":            "optional.of(1)" + strings.Repeat(".optFlatMap(x,optional.of(x))", 9) + ".hasValue()",
		"maps of maps":          "[1]" + strings.Repeat(".map(a,{a:a})", 12) + ".size()>0",
		"maps in lists of maps": "[1]" + strings.Repeat(".map(a,[{a:a}])", 12) + ".size()>0",
		"keys by a condition":   "[1]" + strings.Repeat(".map(a,{(true?a:a):a})", 12) + ".size()>0",
		"optional keys":         "[1]" + strings.Repeat(".map(a,{?a:optional.of(a)})", 12) + ".size()>0",
	} {
		for environment, compile := range environments {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := compile(bomb)
			runtime.ReadMemStats(&after)
			if made := (after.TotalAlloc - before.TotalAlloc) >> 10; err == nil || made > 16<<10 && !raceEnabled {
				t.Errorf("%s as %s: %v, and %d KiB are made", name, environment, err, made)
			}
		}
	}
}

func TestMapsThatAreUsedStillCompile(t *testing.T) {
	for _, text := range []string{
		"{'a': object.?a.orValue(1), 'b': {'c': 1}, 'd': {'e': 1}, 'f': {1: 2}, 'g': {true: 2}, 'h': {string(object.h): 1}}",
		"object.list.map(k, {k.name: k.value})", "object.list[?0].hasValue()", "{?'a': object.?a}", "has(object.a)", "object.list.filter(a, a > 1).exists_one(a, a == 2)",
		strings.Repeat("[{object.a: 1}] + ", 3) + "[{object.b: 1}]",
	} {
		if _, err := expr.CompileDocumentExpression(text, "object"); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := expr.CompileDocumentExpression(strings.Repeat("[{object.a: 1}] + ", 4)+"[{object.b: 1}]", "object"); err == nil || !strings.HasPrefix(err.Error(), "makes 5 maps with computed keys") {
		t.Errorf("one more: %v", err)
	}
}
