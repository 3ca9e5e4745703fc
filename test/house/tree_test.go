package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// modulePath is what import paths of our own begin with.
const modulePath = "atoll.dev/atoll"

// source is one Go file of ours.
type source struct {
	path      string // from the root, with slashes
	dir       string // its directory, "." at the root
	syntax    *ast.File
	lines     int
	test      bool
	generated bool
}

// positionOf of a node as "file:line".
func (s source) positionOf(n ast.Node) string {
	p := fileSet.Position(n.Pos())
	p.Filename, p.Column = s.path, 0
	return p.String()
}

// listImports lists the import paths of the file.
func (s source) listImports() []string {
	var paths []string
	for _, i := range s.syntax.Imports {
		paths = append(paths, strings.Trim(i.Path.Value, `"`))
	}
	return paths
}

var fileSet = token.NewFileSet()

// root is the directory that holds go.mod.
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			panic("house: no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
})

var parsed = sync.OnceValues(func() ([]source, error) {
	var all []source
	tree := os.DirFS(root())
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fileSet, filepath.Join(root(), name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{
			path: name, dir: path.Dir(name), syntax: syntax,
			lines: bytes.Count(text, []byte("\n")), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax),
		})
		return nil
	})
	return all, err
})

// loadSources parses the whole tree once.
func loadSources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
