package expr

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// An expression over counts gives true or false, and errors of its text and of its values say what is wrong.
func TestCountExpressions(t *testing.T) {
	counts := Counts{"stage.clusters": 4, "stage.updated": 3, "stage.failed": 1, "earlier.clusters": 0, "all.updated": 7}
	for text, want := range map[string]string{
		"stage.failed <= 1 && stage.updated > 2":               "true [stage]",
		"all.updated == 6 || stage.updated > earlier.clusters": "true [all earlier stage]",
		"stage.failed == 0":                                    "false [stage]",
		"stage.failed * 100 / stage.clusters < 30":             "true [stage]",
		"stage.failed / earlier.clusters < 1":                  "division by zero",
		"stage.failed":                                         "gives a int, and true or false is needed",
		"stage.lost == 0":                                      "undeclared reference",
		"stage.failed == 0 &&":                                 "line 1, column",
		"true":                                                 "reads no count",
		"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, a + b + c > stage.failed)))": "may cost",
		strings.Repeat("!", MaxLength) + "true": "bytes long",
	} {
		e, err := CompileCountExpression(text)
		got := fmt.Sprint(err)
		if err == nil {
			is, err := e.IsTrueFor(counts)
			if got = fmt.Sprint(is, " ", e.ReadGroups()); err != nil {
				got = err.Error()
			}
			if again, _ := CompileCountExpression(text); again != e || !slices.IsSorted(e.ReadGroups()) {
				t.Errorf("%s: compiled twice, or %v are not sorted", text, e.ReadGroups())
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.60s: %s, want %s", text, got, want)
		}
	}
}
