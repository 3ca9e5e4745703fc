package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// The bounds of an expression over documents.
const (
	// MaxDocumentLength of a text, in bytes.
	MaxDocumentLength = 8192
	// DocumentStopCost at which one evaluation is given up: up to some 90 ms of a core.
	DocumentStopCost = 100_000
	// MaxDocumentValue is how large what an expression gives may be, in bytes of text; an element
	// takes 4, and a list or map 16.
	MaxDocumentValue = 512 << 10
)

// Document is a compiled expression over values of JSON.
type Document struct {
	text      string
	program   cel.Program
	variables []string
}

var documentEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{cel.OptionalTypes()}
	return cel.NewEnv(append(options, functions()...)...)
})

// CompileDocument of a text that sees the named variables, each any value of JSON. The
// error says in one line what is wrong and where.
func CompileDocument(text string, variables ...string) (*Document, error) {
	if len(text) > MaxDocumentLength {
		return nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxDocumentLength)
	}
	env, err := documentEnvironment()
	if err != nil {
		return nil, err
	}
	var seen []cel.EnvOption
	for _, v := range variables {
		seen = append(seen, cel.Variable(v, cel.DynType))
	}
	if env, err = env.Extend(seen...); err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	if usesMatches(checked.NativeRep().Expr()) {
		return nil, errors.New("matches is not here, since what it costs cannot be bounded: use startsWith, endsWith or contains, or patterns in Lua")
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CustomDecorator(flatten), cel.CostTracking(weights{}), cel.CostLimit(DocumentStopCost))
	if err != nil {
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	return &Document{text: text, program: program, variables: variables}, nil
}

func usesMatches(e ast.Expr) (does bool) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		does = does || part.Kind() == ast.CallKind && part.AsCall().FunctionName() == "matches"
	}))
	return does
}

// weights tell the interpreter what calls cost by the size of what they are given, since
// CEL's own costs go by types, and documents have none.
type weights struct{}

// CallCost of one call: 1, and what it reads and makes.
func (weights) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := 1
	switch function {
	case operators.Add: // copies, but what a loop adds to its own result
		if text, ok := result.(types.String); ok {
			cost += len(text) / 16
		} else if _, loop := args[0].(traits.MutableLister); loop {
			cost += lengthOf(args[1])
		} else {
			cost += lengthOf(result)
		}
	case operators.Equals, operators.NotEquals:
		cost += min(weigh(args[0]), weigh(args[1]))
	case operators.In:
		if _, isMap := args[1].(traits.Mapper); !isMap {
			cost += weigh(args[1])
		}
	default:
		cost += dear(function, args)
		for _, a := range args {
			if text, ok := a.(types.String); ok {
				cost += len(text) / 64
			}
		}
	}
	n := uint64(cost)
	return &n
}

// dear is what a call costs that does much with little: reading a version or a quantity, and
// finding a time zone, which is read anew each time.
func dear(function string, args []ref.Val) int {
	switch function {
	case "versionAtLeast", "quantity":
		return 20
	}
	if len(args) == 2 && strings.HasPrefix(function, "get") {
		if _, isTime := args[0].(types.Timestamp); isTime {
			return 500
		}
	}
	return 0
}

// weigh a value: its elements and the length of its texts, down to where it is too heavy
// anyhow.
func weigh(v ref.Val) int {
	room := DocumentStopCost
	switch v := v.(type) {
	case types.String:
		return len(v) / 64
	case traits.Lister, traits.Mapper:
		switch native := v.Value().(type) {
		case map[string]any, []any:
			weighNative(native, &room)
			return DocumentStopCost - room
		}
		return lengthOf(v)
	}
	return 0
}

func lengthOf(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// flat sum of lists: CEL's own is a tree of references, each look at which walks it, so
// that a list that was doubled often takes for ever.
type flat struct{ interpreter.InterpretableCall }

func flatten(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok && call.Function() == operators.Add {
		return flat{call}, nil
	}
	return i, nil
}

// Eval is for the interpreter.
func (f flat) Eval(a interpreter.Activation) ref.Val {
	v := f.InterpretableCall.Eval(a)
	list, ok := v.(traits.Lister)
	if _, loop := v.(traits.MutableLister); !ok || loop {
		return v
	}
	n := lengthOf(v)
	if n > DocumentStopCost {
		return types.NewErr("a list of %d is made, and at most %d are", n, DocumentStopCost)
	}
	out := make([]ref.Val, 0, n)
	for it := list.Iterator(); it.HasNext() == types.True; {
		out = append(out, it.Next())
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

func weighNative(v any, room *int) {
	if *room--; *room < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		*room -= len(v) / 64
	case map[string]any:
		for _, e := range v {
			weighNative(e, room)
		}
	case []any:
		for _, e := range v {
			weighNative(e, room)
		}
	}
}

// String is the text.
func (d *Document) String() string { return d.text }

// Of values by variable: a value of JSON, with int64 and float64 for numbers. The values are
// not changed, and what is given may share parts with them. An error is about these values:
// they lack a key that the expression takes for granted, or cost too much.
func (d *Document) Of(values map[string]any) (any, error) {
	got, _, err := d.program.Eval(values)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	room := room{left: MaxDocumentValue, element: 4, list: 16}
	v, err := plain(got, &room, 4*maxNesting)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("gives more than %d bytes, or is nested deeper than %d", MaxDocumentValue, 4*maxNesting)
	}
	return v, err
}
