package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reasonpage"
)

// TestReasonsPageIsFresh compares docs/reasons.md with the table of reasons.
func TestReasonsPageIsFresh(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(), "docs", "reasons.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != reasonpage.RenderReasonsPage() {
		t.Error("docs/reasons.md is stale: run `make generate`")
	}
}

// TestReasonsAreComplete holds that the table and the constants are the same set, and that each
// reason has one plain sentence and an actor.
func TestReasonsAreComplete(t *testing.T) {
	declared := map[string]bool{}
	for _, s := range loadSources(t) {
		if s.path != reasonsFile {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				declared[strings.Trim(lit.Value, `"`)] = true
			}
			return true
		})
	}
	listed := map[string]bool{}
	for _, r := range atoll.Reasons {
		name := string(r.Reason)
		if listed[name] {
			t.Errorf("%s is in the table twice", name)
		}
		listed[name] = true
		if !declared[name] {
			t.Errorf("%s has no constant in %s", name, reasonsFile)
		}
		if r.Actor == "" || r.Subject == "" || !strings.HasSuffix(r.Sentence, ".") || len(strings.Fields(r.Sentence)) > 25 {
			t.Errorf("%s: give a subject, an actor, and a sentence of at most 25 words", name)
		}
	}
	for name := range declared {
		if !listed[name] {
			t.Errorf("%s is not in the table of reasons", name)
		}
	}
}

// TestReasonsAreUsed holds that each declared reason is the reason of something.
func TestReasonsAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, s := range loadSources(t) {
		if s.test || s.dir == "internal/atoll" {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok {
				used[x.Sel.Name] = true
			}
			return true
		})
	}
	for _, s := range loadSources(t) {
		if s.path != reasonsFile {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && !used[v.Names[0].Name] {
				t.Errorf("%s is the reason of nothing: delete it, or use it", v.Names[0].Name)
			}
			return true
		})
	}
}

// refusers are the directories in which each refusal of a request has a reason of the table.
var refusers = []string{"internal/admission/...", "internal/preview/..."}

// TestRefusalsHaveReasons holds that an API error is made where it gets its reason.
func TestRefusalsHaveReasons(t *testing.T) {
	found := 0
	for _, s := range loadSources(t) {
		if s.test || !slices.ContainsFunc(refusers, func(p string) bool { return isWithin(p, s.dir) }) {
			continue
		}
		reasoned := map[ast.Node]bool{}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if isCallOf(call, "refusal", "WithReason") && len(call.Args) == 2 {
				reasoned[call.Args[1]] = true
			}
			if isCallOf(call, "apierrors", "New") || isCallOf(call, "admission", "NewForbidden") {
				if found++; !reasoned[call] {
					t.Errorf("%s: a refusal without a reason: make it the argument of refusal.WithReason", s.positionOf(call))
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Errorf("there is no refusal in %v", refusers)
	}
}

// isCallOf reports whether a call is of a function of a package whose name begins so.
func isCallOf(call *ast.CallExpr, pkg, prefix string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && nameOfExpression(f.X) == pkg && strings.HasPrefix(f.Sel.Name, prefix)
}

const reasonsFile = "internal/atoll/reasons.go"

// foreignReasons lists the directories whose reasons are those of other systems, and tools.
var foreignReasons = []string{"internal/kinds/...", "lab/...", "tools/...", "cmd/...", "api/...", "test/..."}

var reasonForm = regexp.MustCompile(`^[A-Z][a-zA-Z]*[a-z][a-zA-Z]*$`)

// TestReasonsAreOfTheTable refuses literal reasons outside of the table.
func TestReasonsAreOfTheTable(t *testing.T) {
	for _, s := range loadSources(t) {
		if s.test || s.generated || s.path == reasonsFile || slices.ContainsFunc(foreignReasons, func(p string) bool { return isWithin(p, s.dir) }) {
			continue
		}
		for _, lit := range reasonLiterals(s.syntax) {
			t.Errorf("%s: the reason %s is a literal: declare it in %s, with a row in the table, and use the constant", s.positionOf(lit), lit.Value, reasonsFile)
		}
	}
}

// reasonLiterals returns the literals that a file uses as reasons: in constants and fields named so,
// in assignments to such fields and variables, and as arguments of parameters of the file's own functions.
func reasonLiterals(f *ast.File) (found []*ast.BasicLit) {
	check := func(name string, value ast.Expr) {
		lit, ok := value.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING || !strings.HasPrefix(strings.ToLower(name), "reason") {
			return
		}
		if text, err := strconv.Unquote(lit.Value); err == nil && reasonForm.MatchString(text) {
			found = append(found, lit)
		}
	}
	parameters := reasonParameters(f)
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.ValueSpec:
			for i, v := range x.Values {
				check(x.Names[min(i, len(x.Names)-1)].Name, v)
			}
		case *ast.KeyValueExpr:
			check(nameOfExpression(x.Key), x.Value)
		case *ast.AssignStmt:
			for i := range min(len(x.Lhs), len(x.Rhs)) {
				check(nameOfExpression(x.Lhs[i]), x.Rhs[i])
			}
		case *ast.CallExpr:
			if at, ok := parameters[nameOfExpression(x.Fun)]; ok && at < len(x.Args) {
				check("reason", x.Args[at])
			}
		}
		return true
	})
	return found
}

func nameOfExpression(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// reasonParameters returns the functions of a file that take a reason, with its position.
func reasonParameters(f *ast.File) map[string]int {
	found := map[string]int{}
	add := func(name string, t *ast.FuncType) {
		at := 0
		for _, field := range t.Params.List {
			for _, id := range field.Names {
				if id.Name == "reason" {
					found[name] = at
				}
				at++
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncDecl:
			add(x.Name.Name, x.Type)
		case *ast.AssignStmt:
			if fn, ok := x.Rhs[0].(*ast.FuncLit); ok {
				add(nameOfExpression(x.Lhs[0]), fn.Type)
			}
		}
		return true
	})
	return found
}
