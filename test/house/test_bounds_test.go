package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// boundingCalls end a wait after the duration or at the time of an argument.
var boundingCalls = strings.Fields("After NewTimer WithTimeout WithDeadline SetDeadline SetReadDeadline SetWriteDeadline")

// boundNames are the names of constants and variables that bound a wait.
var boundNames = regexp.MustCompile(`(?i)(limit|timeout|within|deadline)$`)

// boundsInTest finds the places of a test that name seconds or minutes by which something must have
// happened. A busy machine can miss such a bound: testwait.HangLimit is the one bound for waits. Files
// with testing/synctest have fake time.
func boundsInTest(s source) (all []violation) {
	if !s.test || slices.Contains(s.listImports(), "testing/synctest") {
		return nil
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		if isTestBound(n) {
			all = append(all, violation{"bound of a test", s.dir, s.positionOf(n), "a busy machine can miss this bound: use internal/testwait, or count"})
		}
		return true
	})
	return all
}

func isTestBound(n ast.Node) bool {
	switch x := n.(type) {
	case *ast.CallExpr:
		called, ok := x.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(boundingCalls, called.Sel.Name) && slices.ContainsFunc(x.Args, namesSeconds)
	case *ast.BinaryExpr:
		return (x.Op == token.GTR || x.Op == token.GEQ) && namesSeconds(x.Y) && !namesSeconds(x.X)
	case *ast.ValueSpec:
		return slices.ContainsFunc(x.Names, func(name *ast.Ident) bool { return boundNames.MatchString(name.Name) }) && slices.ContainsFunc(x.Values, namesSeconds)
	}
	return false
}

// namesSeconds reports whether the expression contains a unit of a second or more.
func namesSeconds(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		unit, ok := n.(*ast.SelectorExpr)
		if ok && slices.Contains([]string{"Second", "Minute", "Hour"}, unit.Sel.Name) {
			if pkg, ok := unit.X.(*ast.Ident); ok && pkg.Name == "time" {
				found = true
			}
		}
		return !found
	})
	return found
}
