package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// nameResult is the variable of a ResultExpression.
const nameResult = "result"

// ResultExpression is a compiled boolean expression over the number that a measurement returned, which is result. It is
// immutable and safe for concurrent use.
type ResultExpression struct {
	program cel.Program
}

// resultCache holds ResultExpressions and errors by text.
var resultCache = newCompileCache(compileResultUncached)

var resultEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(append(sharedFunctions(), cel.Variable(nameResult, cel.DoubleType))...)
})

// CompileResultExpression compiles a text. The error states what is wrong and where, in one line.
func CompileResultExpression(text string) (*ResultExpression, error) {
	return resultCache.getOrCompile(text)
}

func compileResultUncached(text string) (*ResultExpression, error) {
	env, err := resultEnvironment()
	if err != nil {
		return nil, err
	}
	checked, err := checkCondition(env, text)
	if err != nil {
		if strings.Contains(err.Error(), "undeclared reference") {
			return nil, fmt.Errorf("%w: it has %s, a double", err, nameResult)
		}
		return nil, err
	}
	if !readsResult(checked.NativeRep().Expr()) {
		return nil, fmt.Errorf("does not read %s, so that no measurement changes it", nameResult)
	}
	program, err := newConditionProgram(env, checked)
	if err != nil {
		return nil, err
	}
	return &ResultExpression{program: program}, nil
}

// readsResult reports whether an expression reads the result.
func readsResult(e ast.Expr) (reads bool) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		reads = reads || part.Kind() == ast.IdentKind && part.AsIdent() == nameResult
	}))
	return reads
}

// IsTrueFor reports whether the expression is true for a number. An error is about this number.
func (e *ResultExpression) IsTrueFor(result float64) (bool, error) {
	v, _, err := e.program.Eval(map[string]any{nameResult: result})
	if err != nil {
		return false, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	return v == types.True, nil
}
