package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// The groups of clusters and the counts of each that a CountExpression sees.
var (
	CountGroups = []string{"stage", "earlier", "all"}
	CountFields = []string{"clusters", "updated", "changing", "failed", "waiting", "disconnected", "suspended"}
)

// Counts are the counts of clusters by name, such as stage.updated.
type Counts map[string]int64

// CountExpression is a compiled boolean expression over counts of clusters. It is immutable and safe for concurrent use.
type CountExpression struct {
	program cel.Program
	groups  []string
}

// countCache holds CountExpressions and errors by text.
var countCache = newCompileCache(compileCountsUncached)

var countEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := sharedFunctions()
	for _, group := range CountGroups {
		for _, name := range CountFields {
			options = append(options, cel.Variable(group+"."+name, cel.IntType))
		}
	}
	return cel.NewEnv(options...)
})

// CompileCountExpression compiles a text. The error states what is wrong and where, in one line.
func CompileCountExpression(text string) (*CountExpression, error) {
	return countCache.getOrCompile(text)
}

func compileCountsUncached(text string) (*CountExpression, error) {
	env, err := countEnvironment()
	if err != nil {
		return nil, err
	}
	checked, err := checkCondition(env, text)
	if err != nil {
		return nil, explainCountIssue(err)
	}
	groups := groupsReadBy(checked.NativeRep().Expr())
	if len(groups) == 0 {
		return nil, fmt.Errorf("reads no count: it has %s, each with %s", strings.Join(CountGroups, ", "), strings.Join(CountFields, ", "))
	}
	program, err := newConditionProgram(env, checked)
	if err != nil {
		return nil, err
	}
	return &CountExpression{program: program, groups: groups}, nil
}

// checkCondition parses a text that gives true or false, and checks its types and its cost.
func checkCondition(env *cel.Env, text string) (*cel.Ast, error) {
	checked, _, err := compileText(env, text)
	if err != nil {
		return nil, err
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("gives a %s, and true or false is needed", t)
	}
	cost, err := env.EstimateCost(checked, sizeEstimator{})
	if err != nil {
		return nil, fmt.Errorf("its cost cannot be estimated: %w", err)
	}
	if cost.Max > MaxCost {
		return nil, fmt.Errorf("may cost %d units, and at most %d are allowed: use fewer or smaller loops", cost.Max, MaxCost)
	}
	return checked, nil
}

// newConditionProgram returns a program that ends at StopCost.
func newConditionProgram(env *cel.Env, checked *cel.Ast) (cel.Program, error) {
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(StopCost))
	if err != nil {
		return nil, fmt.Errorf("cannot be run: %w", err)
	}
	return program, nil
}

// explainCountIssue lists the counts, where the issue is a name that is none.
func explainCountIssue(err error) error {
	if !strings.Contains(err.Error(), "undeclared reference") {
		return err
	}
	return fmt.Errorf("%w: it has %s, each with %s", err, strings.Join(CountGroups, ", "), strings.Join(CountFields, ", "))
}

// groupsReadBy returns the groups of which an expression reads a count.
func groupsReadBy(e ast.Expr) (groups []string) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		if part.Kind() != ast.IdentKind {
			return
		}
		if group, _, isCount := strings.Cut(part.AsIdent(), "."); isCount && slices.Contains(CountGroups, group) && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}))
	slices.Sort(groups)
	return groups
}

// ReadGroups returns the groups that the expression reads. It is not to be changed.
func (e *CountExpression) ReadGroups() []string { return e.groups }

// IsTrueFor reports whether the expression is true for the counts. An error is about these counts: a division by 0.
func (e *CountExpression) IsTrueFor(c Counts) (bool, error) {
	values := make(map[string]any, len(c))
	for name, n := range c {
		values[name] = n
	}
	v, _, err := e.program.Eval(values)
	if err != nil {
		return false, errors.New(strings.TrimPrefix(err.Error(), "evaluation error: "))
	}
	return v == types.True, nil
}
