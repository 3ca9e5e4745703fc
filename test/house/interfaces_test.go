package house

import (
	"go/ast"
	"go/parser"
	"maps"
	"path"
	"slices"
	"testing"
)

const (
	maxFunctionFields   = 3 // of a struct
	maxInterfaceMethods = 5
)

// wideTypes lists the types that may have more function fields or methods, with the reason.
var wideTypes = map[string]string{
	"internal/overrides.overriderSpec":   "an entry of the table of override types",
	"internal/overrides.overriderType":   "an entry of the table of override types",
	"internal/schedule.filterRule":       "an entry of the table of filters",
	"internal/sources/generate.leafKind": "an entry of the table of generators",
	"internal/kinds.kindTraits":          "an entry of the table of kinds",
}

// A struct with many functions and an interface with many methods are hard to supply: a consumer
// defines small interfaces, by subject.
func TestInterfacesAreSmall(t *testing.T) {
	packages := map[string][]*ast.File{}
	for _, s := range loadSources(t) {
		if !s.test && !s.generated {
			packages[s.dir] = append(packages[s.dir], s.syntax)
		}
	}
	wide := map[string]bool{}
	for dir, files := range packages {
		for name, width := range measureTypes(files) {
			key := dir + "." + name
			if width.functions <= maxFunctionFields && width.methods <= maxInterfaceMethods {
				continue
			}
			if wide[key] = true; wideTypes[key] == "" {
				t.Errorf("%s: %s has %d function fields and %d methods, at most %d and %d are allowed: define small interfaces, by subject",
					dir, name, width.functions, width.methods, maxFunctionFields, maxInterfaceMethods)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(wideTypes)) {
		if !wide[key] {
			t.Errorf("%s is listed in wideTypes, and is not wide: remove the line", key)
		}
	}
}

// typeWidth counts the function fields of a struct, and the methods of an interface.
type typeWidth struct{ functions, methods int }

// measureTypes measures the types of a package, by name.
func measureTypes(files []*ast.File) map[string]typeWidth {
	types := map[string]ast.Expr{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				types[spec.Name.Name] = spec.Type
			}
			return true
		})
	}
	widths := map[string]typeWidth{}
	for name, expr := range types {
		switch expr := expr.(type) {
		case *ast.StructType:
			widths[name] = typeWidth{functions: countFunctionFields(expr)}
		case *ast.InterfaceType:
			widths[name] = typeWidth{methods: countMethods(expr, types)}
		}
	}
	return widths
}

func countFunctionFields(s *ast.StructType) (n int) {
	for _, field := range s.Fields.List {
		if _, ok := field.Type.(*ast.FuncType); ok {
			n += len(field.Names)
		}
	}
	return n
}

// countMethods counts the methods of an interface, and those of the interfaces of its package
// that it embeds.
func countMethods(i *ast.InterfaceType, types map[string]ast.Expr) (n int) {
	for _, field := range i.Methods.List {
		switch of := field.Type.(type) {
		case *ast.FuncType:
			n += len(field.Names)
		case *ast.Ident:
			if embedded, ok := types[of.Name].(*ast.InterfaceType); ok {
				n += countMethods(embedded, types)
			}
		}
	}
	return n
}

func TestTypesAreMeasured(t *testing.T) {
	f, err := parser.ParseFile(fileSet, path.Join("testdata", "none.go"), `package p
type options struct { a, b func(); c func(int) error; d int; e namer }
type namer interface { Name() string; Rename(string) }
type keeper interface { namer; Keep() }
type narrow struct{}
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]typeWidth{"options": {functions: 3}, "namer": {methods: 2}, "keeper": {methods: 3}, "narrow": {}}
	if got := measureTypes([]*ast.File{f}); !maps.Equal(got, want) {
		t.Errorf("measured %v, want %v", got, want)
	}
}
