package expr

import (
	"fmt"
	"strings"
	"testing"
)

// An expression over a result gives true or false, and errors of its text and of its value say what is wrong.
func TestResultExpressions(t *testing.T) {
	for text, want := range map[string]string{
		"result < 0.5":                          "true",
		"result <= 0.25 && result >= 0":         "true",
		"result > 1":                            "false",
		"result < 1 || result > 5.0":            "true",
		"int(result) / 0 == 1":                  "division by zero",
		"result":                                "gives a double, and true or false is needed",
		"result[0] < 1.0":                       "no matching overload",
		"value < 1.0":                           "it has result, a double",
		"result < 0.5 &&":                       "line 1, column",
		"true":                                  "does not read result",
		strings.Repeat("!", MaxLength) + "true": "bytes long",
	} {
		e, err := CompileResultExpression(text)
		got := fmt.Sprint(err)
		if err == nil {
			is, err := e.IsTrueFor(0.25)
			if got = fmt.Sprint(is); err != nil {
				got = err.Error()
			}
			if again, _ := CompileResultExpression(text); again != e {
				t.Errorf("%s is compiled twice", text)
			}
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.60s: %s, want %s", text, got, want)
		}
	}
}
