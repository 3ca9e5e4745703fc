package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/expr"
)

// Customization is compiled knowledge of some kinds. Each method answers one question, and
// tells whether the customization answers it at all: where it does not, what Atoll knows
// itself counts. Errors are *Error. All may be called from many goroutines.
type Customization struct {
	name   string
	hash   string // of a ResourceInterpreter
	whole  bool   // the hub joins statuses by a script
	target v1alpha1.InterpreterTarget
	rules  map[question]*rule
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

// asked says how a question is put: Karmada's function, the arguments as CEL names them,
// and how many values come back.
type asked struct {
	function string
	names    []string
	results  int
}

var questions = map[question]asked{
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
	name     string
	lua      *program
	function string // "": Argo CD's contract, whose answer is what the script gives
	cel      *expr.Document
	broken   error // it could not be compiled
}

// newRule compiles a rule; at names it, or with ".cel" and ".lua" what it has.
func newRule(at func(part string) string, q question, r v1alpha1.InterpreterRule) (*rule, error) {
	switch {
	case (r.CEL == "") == (r.Lua == ""):
		return nil, &Error{Script: at(""), Why: "needs either cel or lua"}
	case r.CEL != "":
		name := at(".cel")
		d, err := expr.CompileDocument(r.CEL, questions[q].names...)
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

// Name that the customization has on a hub; of what has none there, where it was read.
func (c *Customization) Name() string { return c.name }

// Matches tells whether it means the kind.
func (c *Customization) Matches(gvk schema.GroupVersionKind) bool { return matches(&c.target, gvk) }

// Answers lists the questions that it answers, by the keys of their answers, sorted.
func (c *Customization) Answers() []string {
	var out []string
	for q := range maps.Keys(c.rules) {
		out = append(out, string(q))
	}
	slices.Sort(out)
	return out
}

// ask a question. like is what the first answer is made like.
func (c *Customization) ask(q question, like any, values ...any) (out []any, r *rule, err error) {
	if r = c.rules[q]; r == nil {
		return nil, nil, nil
	}
	if r.broken != nil {
		return nil, r, r.broken
	}
	names := questions[q].names
	if r.cel != nil {
		in := make(map[string]any, len(names))
		for i, name := range names {
			in[name] = values[i]
		}
		v, err := r.cel.Of(in)
		if err != nil {
			return nil, r, &Error{Script: r.name, Why: cut(err.Error(), maxWhy)}
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
	out, err = r.lua.ask(r.function, args, questions[q].results, like)
	return out, r, err
}

// nonsense is an answer of the wrong shape.
func (r *rule) nonsense(format string, args ...any) error {
	return &Error{Script: r.name, Function: r.function, Why: "its answer " + fmt.Sprintf(format, args...)}
}

// kindOf a value of JSON, for an error.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case bool:
		return "a boolean"
	case string:
		return fmt.Sprintf("the string %q", cut(v, 40))
	case int64, float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	case leftOut:
		return "an empty table"
	}
	return "an object"
}
