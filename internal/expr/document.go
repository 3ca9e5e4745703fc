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
	// DocumentStopCost ends an evaluation: up to 90 ms of a core.
	DocumentStopCost = 100_000
	// ObjectStopCost ends the evaluation of an ObjectCondition: up to 9 ms of a core.
	ObjectStopCost = 10_000
	// MaxDocumentValue is the largest result, in bytes of text. An element counts as 4, a list or
	// map as 16.
	MaxDocumentValue = 512 << 10
)

// DocumentExpression is a compiled expression over JSON values. It is immutable and safe for concurrent
// use.
type DocumentExpression struct {
	text      string
	program   cel.Program
	variables []string
}

var documentEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	// The macros of optional types, optMap and optFlatMap, copy their target: a chain of them grows exponentially
	// before any cost is bounded. The standard macros do not.
	options := []cel.EnvOption{cel.OptionalTypes(), cel.ClearMacros(), cel.Macros(cel.StandardMacros...)}
	return cel.NewEnv(append(options, sharedFunctions()...)...)
})

// CompileDocumentExpression compiles a text that sees the named variables, each of any JSON value. The
// error states what is wrong and where, in one line.
func CompileDocumentExpression(text string, variables ...string) (*DocumentExpression, error) {
	d, _, err := compileDocument(text, DocumentStopCost, variables...)
	return d, err
}

// compileDocument returns the expression, and the type of its result.
func compileDocument(text string, stopCost uint64, variables ...string) (*DocumentExpression, *cel.Type, error) {
	if len(text) > MaxDocumentLength {
		return nil, nil, fmt.Errorf("is %d bytes long, and at most %d are read", len(text), MaxDocumentLength)
	}
	env, err := documentEnvironment()
	if err != nil {
		return nil, nil, err
	}
	var seen []cel.EnvOption
	for _, v := range variables {
		seen = append(seen, cel.Variable(v, cel.DynType))
	}
	if env, err = env.Extend(seen...); err != nil {
		return nil, nil, err
	}
	checked, _, err := compileText(env, text)
	if err != nil {
		return nil, nil, err
	}
	if callsMatchesFunction(checked.NativeRep().Expr()) {
		return nil, nil, errors.New("matches is not here, since what it costs cannot be bounded: use startsWith, endsWith or contains, or patterns in Lua")
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CustomDecorator(flattenAdditions), cel.CostTracking(callCosts{}), cel.CostLimit(stopCost))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot be run: %w", err)
	}
	return &DocumentExpression{text: text, program: program, variables: variables}, checked.OutputType(), nil
}

func callsMatchesFunction(e ast.Expr) (does bool) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		does = does || part.Kind() == ast.CallKind && part.AsCall().FunctionName() == "matches"
	}))
	return does
}

// callCosts weighs calls by the size of their arguments. CEL's own costs depend on types, which
// documents do not have.
type callCosts struct{}

// CallCost returns 1 plus the cost of the data that the call reads and makes.
func (callCosts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	cost := 1
	switch function {
	case operators.Add: // copies, except for a loop that adds to its own result
		if text, ok := result.(types.String); ok {
			cost += len(text) / 16
		} else if _, loop := args[0].(traits.MutableLister); loop {
			cost += lengthOf(args[1])
		} else {
			cost += lengthOf(result)
		}
	case operators.Equals, operators.NotEquals:
		cost += min(valueCost(args[0]), valueCost(args[1]))
	case operators.In:
		if _, isMap := args[1].(traits.Mapper); !isMap {
			cost += valueCost(args[1])
		}
	default:
		cost += fixedCallCost(function, args)
		for _, a := range args {
			if text, ok := a.(types.String); ok {
				cost += len(text) / 64
			}
		}
	}
	n := uint64(cost)
	return &n
}

// fixedCallCost is the cost of expensive calls on small arguments: parsing a version or a
// quantity, and loading a time zone, which CEL does on every call.
func fixedCallCost(function string, args []ref.Val) int {
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

// valueCost counts the elements of a value and the length of its texts, up to DocumentStopCost.
func valueCost(v ref.Val) int {
	room := DocumentStopCost
	switch v := v.(type) {
	case types.String:
		return len(v) / 64
	case traits.Lister, traits.Mapper:
		switch native := v.Value().(type) {
		case map[string]any, []any:
			spendNativeCost(native, &room)
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

// flatteningAddition flattens the sum of lists. CEL's own sum is a tree of references, and every
// access walks it: a list that is doubled often takes for ever.
type flatteningAddition struct{ interpreter.InterpretableCall }

func flattenAdditions(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok && call.Function() == operators.Add {
		return flatteningAddition{call}, nil
	}
	return i, nil
}

// Eval implements interpreter.Interpretable.
func (f flatteningAddition) Eval(a interpreter.Activation) ref.Val {
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

func spendNativeCost(v any, room *int) {
	if *room--; *room < 0 {
		return
	}
	switch v := v.(type) {
	case string:
		*room -= len(v) / 64
	case map[string]any:
		for _, e := range v {
			spendNativeCost(e, room)
		}
	case []any:
		for _, e := range v {
			spendNativeCost(e, room)
		}
	}
}

// String returns the text.
func (d *DocumentExpression) String() string { return d.text }

// EvaluateWith returns a JSON value, with int64 and float64 for numbers. values are by variable.
// They are not changed, and the result can share parts with them. An error is about these
// values: a key is missing, or the evaluation costs too much.
func (d *DocumentExpression) EvaluateWith(values map[string]any) (any, error) {
	got, _, err := d.program.Eval(values)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	budget := sizeBudget{bytesLeft: MaxDocumentValue, elementCost: 4, listCost: 16}
	v, err := toPlainJSON(got, &budget, 4*maxNesting)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("gives more than %d bytes, or is nested deeper than %d", MaxDocumentValue, 4*maxNesting)
	}
	return v, err
}
