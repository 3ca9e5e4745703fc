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

// What test/packages.sh calls pure is tested without the race detector, which is right as
// long as nothing there runs beside anything else: in the packages, in their tests, and in
// what they import of ours.
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
		for _, s := range sources(t) {
			if s.dir != dir || s.test && !slices.Contains(pure, imported[i]) {
				continue
			}
			for _, path := range s.imports() {
				if strings.HasPrefix(path, modulePath+"/") && !slices.Contains(imported, path) {
					imported = append(imported, path)
				}
			}
			ast.Inspect(s.syntax, func(n ast.Node) bool {
				if starts(n) {
					t.Errorf("%s: it starts a goroutine, and tests of pure packages run without the race detector, which would see what that does: begin it elsewhere, or take the package that leads here off the list in test/packages.sh", s.position(n))
				}
				return true
			})
		}
	}
}

// starts tells whether a goroutine begins here.
func starts(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		called, ok := n.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains(starters, called.Sel.Name)
	}
	return false
}
