package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxComputedKeys bounds the maps of an expression whose keys are neither literals nor conversions. The checker
// permits a key of any type, so that each such map may double a type: {a: a}.
const maxComputedKeys = 4

// compileText parses a text, checks its form and its types. The cost grows with the length of the text.
func compileText(env *cel.Env, text string) (*cel.Ast, *cel.Issues, error) {
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, issues, firstIssue(issues)
	}
	if n := countComputedKeys(parsed.NativeRep().Expr()); n > maxComputedKeys {
		return nil, nil, fmt.Errorf("makes %d maps with computed keys, and at most %d are compiled: write string(…) around the keys", n, maxComputedKeys)
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, issues, firstIssue(issues)
	}
	return checked, nil, nil
}

// countComputedKeys counts the keys of maps that may be of any type.
func countComputedKeys(e ast.Expr) (n int) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		if part.Kind() != ast.MapKind {
			return
		}
		for _, entry := range part.AsMap().Entries() {
			if !isScalarByForm(entry.AsMapEntry().Key()) {
				n++
			}
		}
	}))
	return n
}

// isScalarByForm reports whether an expression is a literal, or a conversion to a type that a key may have.
func isScalarByForm(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case types.StringType.TypeName(), types.IntType.TypeName(), types.UintType.TypeName(), types.BoolType.TypeName():
			return !call.IsMemberFunction()
		}
	}
	return false
}
