package house

import (
	"cmp"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	maxFileLines     = 600
	maxFunctionLines = 80
	maxParameters    = 6
)

// imposed lists functions with a signature of another project.
var imposed = map[string]string{
	"lab/test/console/terminal_test.go:ExecInContainer": "the interface of k8s.io/cri-streaming",
	"internal/apiserver/engine.go:newOwnerless":         "upstream's generic.StorageDecorator",
	"internal/apiserver/engine.go:GuaranteedUpdate":     "upstream's storage.Interface",
	"internal/apiserver/space.go:GuaranteedUpdate":      "upstream's storage.Interface",

	"internal/apiserver/nodes/storage.go:Delete":           "upstream's storage.Interface",
	"internal/apiserver/nodes/storage.go:GuaranteedUpdate": "upstream's storage.Interface",
	"internal/apiserver/nodes/update.go:Update":            "upstream's rest.Updater",
	"internal/apiserver/nodes/refused.go:Update":           "upstream's rest.Updater",

	"internal/fleetview/server/writes.go:Update":       "upstream's rest.Updater",
	"internal/fleetview/server/subresources.go:Update": "upstream's rest.Updater",
}

func TestEveryPackageStatesItsContract(t *testing.T) {
	said := map[string]string{}
	first := map[string]string{}
	for _, s := range loadSources(t) {
		if s.test && said[s.dir] == "" && first[s.dir] == "" {
			// A directory of tests alone still says what it is for.
			first[s.dir] = s.path
		}
		if !s.test {
			first[s.dir] = s.path
		}
		if s.syntax.Doc != nil && !s.generated {
			said[s.dir] = s.syntax.Doc.Text()
		}
	}
	for dir, file := range first {
		switch text := said[dir]; {
		case text == "" && allGenerated(t, dir):
		case text == "":
			t.Errorf("%s: package %s has no package comment: state its guarantees, its concurrency, and the ownership of its values", file, dir)
		case len(strings.Fields(text)) < 8:
			t.Errorf("%s: the package comment of %s is too short to be a contract: %q", file, dir, strings.TrimSpace(text))
		}
	}
}

// allGenerated reports whether the directory holds nothing that a person wrote.
func allGenerated(t *testing.T, dir string) bool {
	return !slices.ContainsFunc(loadSources(t), func(s source) bool { return s.dir == dir && !s.generated })
}

func TestFilesStayShort(t *testing.T) {
	for _, s := range loadSources(t) {
		if !s.generated && s.lines > maxFileLines {
			t.Errorf("%s: %d lines; at most %d: split it by what it is about", s.path, s.lines, maxFileLines)
		}
	}
}

// maxWiringLines bounds internal/hub, which only connects components.
const maxWiringLines = 1200

func TestTheHubIsWiring(t *testing.T) {
	lines := 0
	for _, s := range loadSources(t) {
		if s.dir == "internal/hub" && !s.test {
			lines += s.lines
		}
	}
	if lines == 0 || lines > maxWiringLines {
		t.Errorf("internal/hub has %d lines; at most %d: logic has a package of its own, with unit tests", lines, maxWiringLines)
	}
}

func TestFunctionsStayShort(t *testing.T) {
	for _, s := range loadSources(t) {
		if s.generated {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			f, ok := n.(*ast.FuncDecl)
			if !ok {
				return true
			}
			if n := countLines(f) - countTables(s, f); n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines; at most %d: name its parts", s.positionOf(f), f.Name.Name, n, maxFunctionLines)
			}
			if n := countParameters(f.Type); n > maxParameters && imposed[s.path+":"+f.Name.Name] == "" {
				t.Errorf("%s: %s takes %d parameters; at most %d: make a struct of those that go together", s.positionOf(f), f.Name.Name, n, maxParameters)
			}
			return true
		})
	}
}

// countLines of a function in lines, its signature and closing brace included.
func countLines(f *ast.FuncDecl) int {
	return fileSet.Position(f.End()).Line - fileSet.Position(f.Pos()).Line + 1
}

// countTables counts the lines of a test function that are data: composite literals and
// raw strings.
func countTables(s source, f *ast.FuncDecl) (n int) {
	if !s.test {
		return 0
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch node.(type) {
		case *ast.CompositeLit, *ast.BasicLit:
			n += fileSet.Position(node.End()).Line - fileSet.Position(node.Pos()).Line
			return false
		}
		return true
	})
	return n
}

func countParameters(f *ast.FuncType) (n int) {
	for _, field := range f.Params.List {
		n += max(1, len(field.Names))
	}
	return n
}

func TestPackagesAreNamedForWhatTheyDo(t *testing.T) {
	vague := regexp.MustCompile(`^(.*)(util|utils|helper|helpers|common|misc|shared)$`)
	for _, s := range loadSources(t) {
		for _, name := range []string{strings.TrimSuffix(s.syntax.Name.Name, "_test"), path.Base(s.dir)} {
			if vague.MatchString(name) {
				t.Errorf("%s: package %q: name a package for what it does, not for being used", s.path, name)
			}
		}
	}
}

// call is a function of another package that has its place only in some files.
type call struct {
	importPath string
	names      []string
	allowed    func(source) bool
	why        string
}

func isMain(s source) bool { return s.syntax.Name.Name == "main" }

// forTests reports packages that only tests import, such as labtest.
func forTests(s source) bool { return strings.HasSuffix(path.Base(s.dir), "test") }

var placedCalls = []call{
	{
		importPath: "context", names: []string{"Background", "TODO"},
		allowed: func(s source) bool { return isMain(s) || s.test || forTests(s) },
		why:     "take the caller's context; only main and tests begin one",
	},
	{
		importPath: "time", names: []string{"Sleep"},
		// In a synctest bubble, sleeping only moves the bubble's clock.
		allowed: func(s source) bool { return !s.test || bubbles()[s.dir] },
		why:     "wait for the thing itself: a channel, synctest, or a poll with a deadline",
	},
	{
		importPath: "fmt", names: []string{"Print", "Printf", "Println"},
		allowed: func(s source) bool {
			return s.test || isMain(s) || isWithin("internal/command/...", s.dir)
		},
		why: "write to a writer that the caller gives, or log",
	},
	{
		importPath: "os", names: []string{"Exit"},
		allowed: func(s source) bool { return isMain(s) || s.test },
		why:     "return an error; only main ends the process",
	},
}

// bubbles lists the directories whose tests use synctest.
var bubbles = sync.OnceValue(func() map[string]bool {
	dirs := map[string]bool{}
	all, _ := parsed() // an error fails the calling test
	for _, s := range all {
		if s.test && slices.Contains(s.listImports(), "testing/synctest") {
			dirs[s.dir] = true
		}
	}
	return dirs
})

func TestCallsHaveTheirPlace(t *testing.T) {
	for _, s := range loadSources(t) {
		if s.generated {
			continue
		}
		for _, c := range placedCalls {
			if !c.allowed(s) {
				forEachCall(s, c.importPath, c.names, func(at ast.Node, name string) {
					t.Errorf("%s: %s.%s: %s", s.positionOf(at), path.Base(c.importPath), name, c.why)
				})
			}
		}
	}
}

// forEachCall visits the uses of names of the imported package in the file.
func forEachCall(s source, importPath string, names []string, visit func(at ast.Node, name string)) {
	local := ""
	for _, i := range s.syntax.Imports {
		if strings.Trim(i.Path.Value, `"`) == importPath {
			local = path.Base(importPath)
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			visit(sel, sel.Sel.Name)
		}
		return true
	})
}

func TestNothingIsLeftForLater(t *testing.T) {
	// The words are put together here so that the test does not find itself.
	later := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|\bfor ` + `now\b`)
	for _, s := range loadSources(t) {
		if s.generated {
			continue
		}
		for _, group := range s.syntax.Comments {
			for _, c := range group.List {
				if word := later.FindString(c.Text); word != "" {
					t.Errorf("%s: %q: do it, or write down in ARCHITECTURE.md why not", s.positionOf(c), word)
				}
			}
		}
	}
}

// TestExportedNamesAreExplained holds that what other packages may use says what
// it does. Methods that only fulfil a well-known interface need no words.
func TestExportedNamesAreExplained(t *testing.T) {
	obvious := []string{"Error", "String", "Unwrap", "Close", "Len", "Less", "Swap", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText", "ServeHTTP"}
	for _, s := range loadSources(t) {
		if s.generated || s.test || isMain(s) {
			continue
		}
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !(d.Recv != nil && slices.Contains(obvious, d.Name.Name)) {
					t.Errorf("%s: %s is exported and says nothing about itself", s.positionOf(d), d.Name.Name)
				}
			case *ast.GenDecl:
				if d.Tok == token.TYPE {
					explainTypes(t, s, d)
				}
			}
		}
	}
}

func explainTypes(t *testing.T, s source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		ts := spec.(*ast.TypeSpec)
		if ts.Name.IsExported() && cmp.Or(d.Doc.Text(), ts.Doc.Text(), ts.Comment.Text()) == "" {
			t.Errorf("%s: type %s is exported and says nothing about itself", s.positionOf(ts), ts.Name.Name)
		}
	}
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !exported {
			exported = id.IsExported()
			return false
		}
		return true
	})
	return exported
}
