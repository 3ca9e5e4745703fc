package house

import (
	"go/ast"
	"strings"
	"testing"
)

// TestAgentsGoroutinesContainTheirPanics: the hub runs agents of many members in its own
// process, which a panic in one of them must not end.
func TestAgentsGoroutinesContainTheirPanics(t *testing.T) {
	seen := 0
	for _, s := range loadSources(t) {
		if s.test || s.generated || !strings.HasPrefix(s.dir, "internal/agent") || s.dir == "internal/agent/agenttest" {
			continue
		}
		check := func(n ast.Node, run ast.Expr) {
			seen++
			body, literal := run.(*ast.FuncLit)
			if !literal || !hasRecover(body.Body) {
				t.Errorf("%s: a goroutine does not `defer crash.RecoverContained(ctx)`: a panic in it would end the hub that runs the agent, and all other agents with it", s.positionOf(n))
			}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				check(n, n.Call.Fun)
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Go" && len(n.Args) == 1 {
					check(n, n.Args[0])
				}
			}
			return true
		})
	}
	if seen < 15 {
		t.Errorf("only %d goroutines were found: look where they begin now", seen)
	}
}

// hasRecover reports whether a function defers crash.RecoverContained.
func hasRecover(body *ast.BlockStmt) bool {
	for _, statement := range body.List {
		d, ok := statement.(*ast.DeferStmt)
		if !ok {
			continue
		}
		f, ok := d.Call.Fun.(*ast.SelectorExpr)
		if !ok || f.Sel.Name != "RecoverContained" {
			continue
		}
		if from, ok := f.X.(*ast.Ident); ok && from.Name == "crash" {
			return true
		}
	}
	return false
}
