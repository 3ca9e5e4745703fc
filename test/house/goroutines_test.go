package house

import (
	"go/ast"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// starters are methods and functions that run what they are given beside their caller.
var starters = []string{"Go", "AfterFunc", "Parallel", "RunParallel", "NewServer", "ListenAndServe", "Serve"}

// The pure packages of test/packages.sh are tested without the race detector, which is right as
// long as nothing there runs concurrently: in the packages, in their tests, and in the packages of
// Atoll that they import.
func TestNothingRunsAtOnceInPurePackages(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join("test", "packages.sh"), "pure")
	cmd.Dir = root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the pure packages: %v", err)
	}
	pure := strings.Fields(string(out))
	if len(pure) == 0 {
		t.Fatal("no package is pure")
	}
	imported := slices.Clone(pure)
	for i := 0; i < len(imported); i++ {
		dir := strings.TrimPrefix(imported[i], modulePath+"/")
		for _, s := range loadSources(t) {
			if s.dir != dir || s.test && !slices.Contains(pure, imported[i]) {
				continue
			}
			for _, path := range s.listImports() {
				if strings.HasPrefix(path, modulePath+"/") && !slices.Contains(imported, path) {
					imported = append(imported, path)
				}
			}
			ast.Inspect(s.syntax, func(n ast.Node) bool {
				if startsGoroutine(n) {
					t.Errorf("%s: it starts a goroutine, and tests of pure packages run without the race detector, which would see what that does: begin it elsewhere, or take the package that leads here off the list in test/packages.sh", s.positionOf(n))
				}
				return true
			})
		}
	}
}

// startsGoroutine reports whether a goroutine begins here.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		called, ok := n.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(starters, called.Sel.Name)
	}
	return false
}
