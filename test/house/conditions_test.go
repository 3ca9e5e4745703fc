package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// foreignConditions lists the directories that write conditions of other systems' kinds.
var foreignConditions = []string{"internal/kinds/...", "internal/agent/...", "internal/clusterstatus/profiles", "internal/clusternode", "lab/...", "tools/...", "test/..."}

// conditionConstant matches the doc comment of constants that are condition types.
var conditionConstant = regexp.MustCompile(`(?m)^Condition types of|is the type of a .*condition|is the condition type of`)

// TestConditionTypesAreOfTheTable holds that the condition types that api/v1alpha1 declares are those
// of atoll.ConditionTypes, and that no code sets a condition of another type.
func TestConditionTypesAreOfTheTable(t *testing.T) {
	listed, unused := map[string]bool{}, map[string]bool{}
	for _, types := range atoll.ConditionTypes {
		for _, c := range types {
			listed[c.Type], unused[c.Type] = true, true
		}
	}
	constants := map[string]bool{}
	for _, s := range loadSources(t) {
		if s.test || s.dir != "api/v1alpha1" {
			continue
		}
		for name, value := range conditionConstants(s.syntax) {
			constants[name] = true
			if delete(unused, value); !listed[value] {
				t.Errorf("%s: the condition type %s is not in atoll.ConditionTypes", s.path, name)
			}
		}
	}
	for name := range unused {
		t.Errorf("atoll.ConditionTypes has %s, and api/v1alpha1 declares no such condition type", name)
	}
	for _, s := range loadSources(t) {
		if s.test || s.generated || slices.ContainsFunc(foreignConditions, func(p string) bool { return isWithin(p, s.dir) }) {
			continue
		}
		for _, value := range conditionTypeValues(s.syntax) {
			switch v := value.(type) {
			case *ast.SelectorExpr:
				if constants[v.Sel.Name] || v.Sel.Name == "Type" {
					continue // "Type" is a field of the table's entries
				}
			case *ast.Ident:
				continue // a parameter, whose values are checked where they are constants
			}
			t.Errorf("%s: a condition is set whose type is no constant of api/v1alpha1 that atoll.ConditionTypes lists", s.positionOf(value))
		}
	}
}

// conditionConstants returns the constants of a file that are condition types, with their values.
func conditionConstants(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST || !conditionConstant.MatchString(g.Doc.Text()) {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				out[v.Names[0].Name] = strings.Trim(lit.Value, `"`)
			}
		}
	}
	return out
}

// conditionTypeValues returns the types of all metav1.Condition that a file makes.
func conditionTypeValues(f *ast.File) (out []ast.Expr) {
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if of, ok := lit.Type.(*ast.SelectorExpr); !ok || of.Sel.Name != "Condition" || nameOfExpression(of.X) != "metav1" {
			return true
		}
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok && nameOfExpression(kv.Key) == "Type" {
				out = append(out, kv.Value)
			}
		}
		return true
	})
	return out
}
