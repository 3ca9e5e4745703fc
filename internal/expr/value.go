package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"atoll.dev/atoll/internal/atoll"
)

// MaxValue is the largest result, in bytes of text and elements.
const MaxValue = 4096

// maxNesting of a result.
const maxNesting = 8

// ValueExpression is a compiled expression over a cluster. It sees the fields that are set on the hub, and
// no properties. It is immutable and safe for concurrent use.
type ValueExpression struct {
	text    string
	program cel.Program
	cost    uint64
}

// valueCache holds Values and errors by text.
var valueCache = newCompileCache(compileValueUncached)

var valueEnvironment = sync.OnceValues(func() (*cel.Env, error) { return cel.NewEnv(hubClusterVariables()...) })

// CompileValueExpression compiles a text. The error states what is wrong and where, in one line.
func CompileValueExpression(text string) (*ValueExpression, error) {
	return valueCache.getOrCompile(text)
}

func compileValueUncached(text string) (*ValueExpression, error) {
	env, err := valueEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues, err := compileText(env, text)
	if err != nil {
		return nil, explainClusterIssue(err, issues, text)
	}
	cost, err := env.EstimateCost(checked, sizeEstimator{})
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be estimated: %w", err)
	}
	if cost.Max > MaxCost {
		return nil, fmt.Errorf("may cost %d units on one cluster, and at most %d are allowed: use fewer or smaller loops", cost.Max, MaxCost)
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(StopCost))
	if err != nil {
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	return &ValueExpression{text: text, program: program, cost: max(cost.Max, 1)}, nil
}

// MaxEstimatedCost returns the highest cost on a large cluster.
func (v *ValueExpression) MaxEstimatedCost() uint64 { return v.cost }

// String returns the text.
func (v *ValueExpression) String() string { return v.text }

// EvaluateFor returns a JSON value, with int64 and float64 for numbers. An error is about this
// cluster alone: a key is missing, or the evaluation costs too much.
func (v *ValueExpression) EvaluateFor(c *atoll.ClusterView) (any, error) {
	a := activations.Get().(*activation)
	a.Cluster = Cluster{ClusterView: c}
	got, _, err := v.program.Eval(a)
	a.Cluster = Cluster{}
	activations.Put(a)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	budget := sizeBudget{bytesLeft: MaxValue, elementCost: 1, listCost: 1}
	given, err := toPlainJSON(got, &budget, maxNesting)
	if errors.Is(err, errTooLarge) {
		err = fmt.Errorf("gives more than %d bytes", MaxValue)
	}
	return given, err
}

var errTooLarge = errors.New("gives more than a value may hold")

// sizeBudget is the size that remains for a result: texts count by their bytes, elements, lists
// and maps by a fixed cost.
type sizeBudget struct{ bytesLeft, elementCost, listCost int }

// spendSize returns false where the budget is exceeded.
func (r *sizeBudget) spendSize(n int) bool {
	r.bytesLeft -= n
	return r.bytesLeft >= 0
}

// toPlainJSON converts a value of CEL to JSON values, within the budget.
func toPlainJSON(v ref.Val, budget *sizeBudget, nesting int) (any, error) {
	text, isText := v.(types.String)
	size := budget.elementCost + len(text)
	switch v.(type) {
	case traits.Mapper, traits.Lister:
		size = budget.listCost
	}
	if !budget.spendSize(size) || nesting < 0 {
		return nil, errTooLarge
	}
	switch v := v.(type) {
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	case types.Null:
		return nil, nil
	case traits.Mapper:
		return toPlainMap(v, budget, nesting)
	case traits.Lister:
		return toPlainList(v, budget, nesting)
	}
	if isText {
		return string(text), nil
	}
	return nil, fmt.Errorf("gives a %s, which is no value of JSON", v.Type().TypeName())
}

func toPlainList(list traits.Lister, budget *sizeBudget, nesting int) (any, error) {
	out := []any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		e, err := toPlainJSON(it.Next(), budget, nesting-1)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func toPlainMap(m traits.Mapper, budget *sizeBudget, nesting int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, ok := key.(types.String)
		if !ok {
			return nil, fmt.Errorf("gives a map with a key that is a %s", key.Type().TypeName())
		}
		if !budget.spendSize(len(name)) {
			return nil, errTooLarge
		}
		e, err := toPlainJSON(m.Get(key), budget, nesting-1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = e
	}
	return out, nil
}
