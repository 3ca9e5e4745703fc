package script

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/phrase"
)

// Customization is compiled knowledge of some kinds. Each method answers one question and
// reports whether the customization answers it; otherwise Atoll's own knowledge counts. Errors
// are *Error. All methods are safe for concurrent use.
type Customization struct {
	name          string
	hash          string // of a ResourceInterpreter
	joinsStatuses bool   // the hub joins statuses by a script
	target        v1alpha1.InterpreterTarget
	rules         map[question]*rule
	reportTime    int64 // in Unix seconds; 0: not stated
}

// ForReportTime returns the customization for answers about a time, in Unix seconds. os.time of a script in Lua
// returns it. Without one, os.time returns the creation time of the object.
func (c *Customization) ForReportTime(unix int64) *Customization {
	out := *c
	out.reportTime = unix
	return &out
}

type question string

// The questions, by the keys of their answers.
const (
	qReplicas     question = "replicas"
	qComponents   question = "components"
	qRevise       question = "revised"
	qRetain       question = "retained"
	qHealth       question = "health"
	qStatus       question = "status"
	qAggregate    question = "aggregated"
	qDependencies question = "dependencies"
)

// questionSignature holds Karmada's function for a question, the names of its arguments in CEL,
// and the number of results.
type questionSignature struct {
	function string
	names    []string
	results  int
}

var questions = map[question]questionSignature{
	qReplicas:     {"GetReplicas", []string{"object"}, 2},
	qComponents:   {"GetComponents", []string{"object"}, 1},
	qRevise:       {"ReviseReplica", []string{"object", "replicas"}, 1},
	qRetain:       {"Retain", []string{"object", "observed"}, 1},
	qHealth:       {"InterpretHealth", []string{"object"}, 1},
	qStatus:       {"ReflectStatus", []string{"object"}, 1},
	qAggregate:    {"AggregateStatus", []string{"object", "items"}, 1},
	qDependencies: {"GetDependencies", []string{"object"}, 1},
}

// rule answers one question in one language.
type rule struct {
	name         string
	lua          *luaProgram
	function     string // "": Argo CD's contract, where the script itself returns the answer
	cel          *expr.DocumentExpression
	compileError error // it could not be compiled
}

// newRule compiles a rule. at returns the place of the rule for errors, or with ".cel" and
// ".lua" the place of its text.
func newRule(at func(part string) string, q question, r v1alpha1.InterpreterRule) (*rule, error) {
	switch {
	case (r.CEL == "") == (r.Lua == ""):
		return nil, &Error{Script: at(""), Why: "needs either cel or lua"}
	case r.CEL != "":
		name := at(".cel")
		d, err := expr.CompileDocumentExpression(r.CEL, questions[q].names...)
		if err != nil {
			return nil, &Error{Script: name, Why: err.Error()}
		}
		return &rule{name: name, cel: d}, nil
	}
	return newLuaRule(at(".lua"), q, r.Lua)
}

func newLuaRule(name string, q question, source string) (*rule, error) {
	p, err := compileLua(name, source)
	if err != nil {
		return nil, err
	}
	out := &rule{name: name, lua: p, function: questions[q].function}
	if !p.functions[out.function] {
		why := fmt.Sprintf("it makes no function %s(%s)", out.function, strings.Join(questions[q].names, ", "))
		switch {
		case q != qHealth:
			return nil, &Error{Script: name, Line: 1, Column: 1, Why: why}
		case !p.returns:
			return nil, &Error{Script: name, Line: 1, Column: 1, Why: why + ", and gives nothing by itself, as a health script of Argo CD does"}
		}
		out.function = ""
	}
	return out, nil
}

// runQuestion returns the answers and the rule that gave them; the rule is nil where there is
// none. like gives the types of empty tables in the first answer.
func (c *Customization) runQuestion(q question, like any, values ...any) (out []any, r *rule, err error) {
	if r = c.rules[q]; r == nil {
		return nil, nil, nil
	}
	if r.compileError != nil {
		return nil, r, r.compileError
	}
	names := questions[q].names
	if r.cel != nil {
		in := make(map[string]any, len(names))
		for i, name := range names {
			in[name] = values[i]
		}
		v, err := r.cel.EvaluateWith(in)
		if err != nil {
			return nil, r, &Error{Script: r.name, Why: phrase.CutText(err.Error(), maxWhy)}
		}
		return []any{v, nil}, r, nil
	}
	args := make([]argument, 0, len(names))
	for i, name := range names {
		if r.function == "" {
			name = "obj"
		}
		args = append(args, argument{name, values[i]})
	}
	out, err = r.lua.runFunction(r.function, args, questions[q].results, reportTimeOf(c.reportTime, values), like)
	return out, r, err
}

// answerError is the error for an answer of the wrong shape.
func (r *rule) answerError(format string, args ...any) error {
	return &Error{Script: r.name, Function: r.function, Why: "its answer " + fmt.Sprintf(format, args...)}
}

// describeJSON names a JSON value for an error.
func describeJSON(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a boolean"
	case string:
		return fmt.Sprintf("the string %q", phrase.CutText(v, 40))
	case int64, float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	case omittedTable:
		return "an empty table"
	}
	return "an object"
}
