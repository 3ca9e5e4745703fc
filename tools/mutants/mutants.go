// Package mutants makes small faults in Go source: mutants. Tests of the source should fail on
// each.
//
// Contract: every mutant of a file is compiled in, behind a switch that the environment variable
// ATOLL_MUTANT sets by the mutant's number. One build serves all. The package reads and returns
// text; it writes nothing. Draw returns the same mutants for the same source and seed.
package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Mutant is one fault, made by two insertions into a file.
type Mutant struct {
	ID         int // its number among the drawn ones, from 1
	File       string
	Line       int
	What       string // the fault, for people
	start, end int    // offsets of what it replaces
	before     string // with %d for the number
	after      string
}

// mutantFinder collects the mutants of one file.
type mutantFinder struct {
	fset  *token.FileSet
	file  string
	src   []byte
	found []Mutant
}

// FindMutants returns the mutants of a file, by position. Generated files have none.
func FindMutants(file string, src []byte) ([]Mutant, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if ast.IsGenerated(parsed) {
		return nil, nil
	}
	f := &mutantFinder{fset: fset, file: file, src: src}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.addFuncMutants(fn.Type, fn.Body)
		}
	}
	slices.SortStableFunc(f.found, func(a, b Mutant) int { return a.start - b.start })
	return f.found, nil
}

// addFuncMutants adds the mutants of a function; function literals in it have their own results.
func (f *mutantFinder) addFuncMutants(of *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.addFuncMutants(n.Type, n.Body)
			return false
		case *ast.GenDecl:
			return n.Tok != token.CONST
		case *ast.BlockStmt:
			f.addRemovalMutants(n.List)
		case *ast.CaseClause:
			f.addRemovalMutants(n.Body)
		case *ast.CommClause:
			f.addRemovalMutants(n.Body)
		case *ast.IfStmt:
			f.addMutant(n.Cond, "negate "+f.sourceOf(n.Cond), "(", ") != mutantIs(%d)")
		case *ast.ReturnStmt:
			f.addZeroReturnMutant(of, n)
		case *ast.BinaryExpr:
			f.addOperatorMutant(n)
		case *ast.CallExpr:
			return !isLogCall(n) && !isMakeCall(n)
		case *ast.BasicLit:
			f.addIncrementMutant(n)
		}
		return true
	})
}

// addRemovalMutants adds a mutant without each statement that can go.
func (f *mutantFinder) addRemovalMutants(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && isLogCall(call) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || areAllBlank(s.Lhs) {
				continue
			}
		case *ast.BranchStmt, *ast.IncDecStmt, *ast.SendStmt:
		default:
			continue
		}
		f.addMutant(s, "remove "+f.sourceOf(s), "if !mutantIs(%d) { ", " }")
	}
}

var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
}

func (f *mutantFinder) addOperatorMutant(n *ast.BinaryExpr) {
	if op, ok := swapped[n.Op]; ok {
		other := f.sourceOf(n.X) + " " + op.String() + " " + f.sourceOf(n.Y)
		f.addMutant(n, f.sourceOf(n)+" → "+other, "func() bool { if mutantIs(%d) { return "+other+" }; return (", ") }()")
	}
}

func (f *mutantFinder) addIncrementMutant(n *ast.BasicLit) {
	if n.Kind == token.INT {
		f.addMutant(n, n.Value+" → "+n.Value+"+1", "mutantAdd(%d, ", ")")
	}
}

// addZeroReturnMutant adds a mutant that returns zero values, where the statement returns others.
func (f *mutantFinder) addZeroReturnMutant(of *ast.FuncType, n *ast.ReturnStmt) {
	if len(n.Results) == 0 || !slices.ContainsFunc(n.Results, f.isNonZeroExpr) {
		return
	}
	var zeros []string
	for _, r := range of.Results.List {
		for range max(1, len(r.Names)) {
			zeros = append(zeros, "*new("+f.sourceOf(r.Type)+")")
		}
	}
	f.addMutant(n, "return zero for "+f.sourceOf(n), "if mutantIs(%d) { return "+strings.Join(zeros, ", ")+" }; ", "")
}

func (f *mutantFinder) isNonZeroExpr(e ast.Expr) bool {
	text := f.sourceOf(e)
	return !slices.Contains([]string{"nil", "false", "0", `""`}, text) && !strings.HasSuffix(text, "{}")
}

func (f *mutantFinder) addMutant(n ast.Node, what, before, after string) {
	what = strings.Join(strings.Fields(what), " ")
	if len(what) > 160 {
		what = what[:160] + "…"
	}
	f.found = append(f.found, Mutant{
		File: f.file, Line: f.fset.Position(n.Pos()).Line, What: what, before: before, after: after,
		start: f.fset.Position(n.Pos()).Offset, end: f.fset.Position(n.End()).Offset,
	})
}

func (f *mutantFinder) sourceOf(n ast.Node) string {
	return string(f.src[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

// isLogCall reports a call of a logger: no test holds what it writes.
func isLogCall(call *ast.CallExpr) bool {
	found := false
	ast.Inspect(call.Fun, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && slices.Contains([]string{"log", "logger", "Log", "klog"}, id.Name)
		return !found
	})
	return found
}

// isMakeCall reports a call of make: its sizes are hints.
func isMakeCall(call *ast.CallExpr) bool {
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "make"
}

func areAllBlank(targets []ast.Expr) bool {
	return !slices.ContainsFunc(targets, func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return !ok || id.Name != "_"
	})
}

// Draw draws n mutants, or all when there are fewer, and numbers them from 1.
func Draw(all []Mutant, n int, seed uint64) []Mutant {
	var drawn []Mutant
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:min(n, len(all))] {
		m := all[i]
		m.ID = len(drawn) + 1
		drawn = append(drawn, m)
	}
	return drawn
}

// Insert returns the file with its mutants compiled in.
func Insert(src []byte, of []Mutant) string {
	type insertion struct {
		at, order int
		text      string
	}
	var all []insertion
	for i, m := range of {
		// The first of two with the same range is the outer one.
		size := 2*(m.end-m.start)*len(of) - i
		before := strings.Replace(m.before, "%d", fmt.Sprint(m.ID), 1)
		after := strings.Replace(m.after, "%d", fmt.Sprint(m.ID), 1)
		// At one offset, what ends comes before what starts, and the outer encloses the inner.
		all = append(all, insertion{m.start, math.MaxInt - size, before}, insertion{m.end, size, after})
	}
	slices.SortStableFunc(all, func(a, b insertion) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.order - b.order
	})
	var out strings.Builder
	done := 0
	for _, i := range all {
		out.Write(src[done:i.at])
		out.WriteString(i.text)
		done = i.at
	}
	out.Write(src[done:])
	return out.String()
}

// SpansAny reports whether one of the lines, FILE:LINE, is one of the mutant's.
func (m Mutant) SpansAny(src []byte, lines map[string]bool) bool {
	for line := m.Line; line <= m.Line+strings.Count(string(src[m.start:m.end]), "\n"); line++ {
		if lines[fmt.Sprintf("%s:%d", m.File, line)] {
			return true
		}
	}
	return false
}

// MutantSwitchSource returns the file that a package with mutants needs.
func MutantSwitchSource(packageName string) string {
	return "package " + packageName + `

import (
	"os"
	"strconv"
)

var mutantNumber = func() int { n, _ := strconv.Atoi(os.Getenv("ATOLL_MUTANT")); return n }()

func mutantIs(id int) bool { return mutantNumber == id }

func mutantAdd(id, n int) int {
	if mutantIs(id) {
		return n + 1
	}
	return n
}
`
}
